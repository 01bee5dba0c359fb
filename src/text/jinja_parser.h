// Reads a template into its syntax tree.
//
// Called once a template, by Template::parse. Everything the engine does not know (a tag, a filter, a test) is refused
// here with its name and line, so that a template that was accepted does not fail on it in the middle of a
// conversation.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace sluice::text::jinja {

// Throws Error(bad_input) that names `origin`, the line and the construct.
ast::Body parse_template(std::string_view source, std::string_view origin);

// Recursive descent, split over jinja_parse_expr.cc, jinja_parse_access.cc and jinja_parse_stmt.cc.
class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view origin) : tokens_(std::move(tokens)), origin_(origin) {}
  ast::Body parse();

 private:
  using EndNames = std::initializer_list<std::string_view>;
  enum class TupleForm { full, without_condition, parenthesised };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  [[noreturn]] void unexpected(const std::string& expected) const;

  // Nodes; the height of the tree is checked as it grows.
  template <class Node>
  ast::ExprPtr make(int line, Node node);

  // Expressions, loosest binding first.
  ast::ExprPtr expression();
  ast::ExprPtr logical_or();
  ast::ExprPtr logical_and();
  ast::ExprPtr logical_not();
  ast::ExprPtr compare();
  bool comparison(ast::Compare& node);
  ast::ExprPtr sum();
  ast::ExprPtr concat();
  ast::ExprPtr product();
  ast::ExprPtr power();
  ast::ExprPtr unary(bool with_filters);
  ast::ExprPtr primary();
  ast::ExprPtr name_or_constant();
  ast::ExprPtr tuple(TupleForm form, std::string_view end_name = "");
  bool at_tuple_end(std::string_view end_name) const;
  ast::ExprPtr list();
  ast::ExprPtr dict();

  // What follows a primary.
  ast::ExprPtr postfix(ast::ExprPtr node);
  ast::ExprPtr filters_and_tests(ast::ExprPtr node);
  ast::ExprPtr attribute(ast::ExprPtr node);
  ast::ExprPtr subscript(ast::ExprPtr node);
  ast::ExprPtr slice(ast::ExprPtr object, ast::ExprPtr start, int line);
  ast::ExprPtr call(ast::ExprPtr node);
  ast::Arguments arguments();
  void argument(ast::Arguments& arguments);
  ast::ExprPtr filter(ast::ExprPtr input);
  ast::ExprPtr filter_chain();
  ast::ExprPtr test(ast::ExprPtr input);
  std::string dotted_name();
  void check_applied_name(const std::string& filter, const ast::Arguments& arguments) const;

  // Statements.
  ast::Body body(EndNames end_names);
  ast::Body block_body(std::string_view tag, EndNames end_names);
  ast::Stmt statement();
  ast::Stmt::Node set_statement();
  ast::Stmt::Node if_statement();
  ast::Stmt::Node for_statement();
  ast::Stmt::Node loop_control(bool is_break);
  ast::Stmt::Node macro_statement();
  ast::Stmt::Node call_statement();
  ast::Stmt::Node filter_statement();
  ast::Stmt::Node with_statement();
  ast::Stmt::Node generation_statement();
  ast::Stmt::Node print_statement(int line);
  [[noreturn]] void unknown_tag(const std::string& name) const;
  ast::Target target(bool with_namespace, std::string_view end_name = "");
  ast::Target single_target(bool with_namespace);
  void signature(ast::MacroDefinition& definition);
  void macro_body(ast::MacroDefinition& definition, std::string_view tag, std::string_view end_name);

  // One level of nesting; fails when there are too many.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  std::string_view origin_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;      // open for loops, up to the nearest macro: where break is allowed
  int loops_all_ = 0;  // open for loops, macros or not: where `loop` cannot be assigned
  std::vector<std::string> open_tags_;
  std::vector<ast::MacroDefinition*> macros_;  // those whose bodies are being read
};

}  // namespace sluice::text::jinja
