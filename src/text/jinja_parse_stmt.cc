#include <algorithm>

#include "text/jinja_parse_node.h"
#include "text/jinja_parser.h"

// Tags.
namespace sluice::text::jinja {

using ast::ExprPtr;

namespace {

// Reads names inside a macro or a loop body without forgetting what was outside.
template <class T>
class Replaced {
 public:
  Replaced(T& slot, T value) : slot_(slot), old_(slot) { slot = value; }
  ~Replaced() { slot_ = old_; }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  T& slot_;
  T old_;
};

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" || name == "None";
}

}  // namespace

ast::Body parse_template(std::string_view source, std::string_view origin) {
  return Parser(tokenize(source, origin), origin).parse();
}

ast::Body Parser::parse() { return body({}); }

// Statements up to a tag named in `end_names`, which becomes the current token.
ast::Body Parser::body(EndNames end_names) {
  ast::Body statements;
  while (current().type != TokenType::end) {
    const int line = current().line;
    if (current().type == TokenType::text) {
      statements.push_back({line, ast::Text{take().text}});
    } else if (current().type == TokenType::print_begin) {
      take();
      statements.push_back({line, ast::Print{tuple(TupleForm::full)}});
      if (current().type != TokenType::print_end) unexpected("'}}'");
      take();
    } else {
      take();
      if (std::any_of(end_names.begin(), end_names.end(), [&](auto name) { return current().is_name(name); })) {
        return statements;
      }
      statements.push_back(statement());
      if (current().type != TokenType::block_end) unexpected("'%}'");
      take();
    }
  }
  if (end_names.size() == 0) return statements;
  std::string expected;
  for (const auto name : end_names) expected += (expected.empty() ? "'" : " or '") + std::string(name) + "'";
  fail("the template ends inside '" + open_tags_.back() + "', expected " + expected);
}

// The rest of an opening tag, then its body.
ast::Body Parser::block_body(std::string_view tag, EndNames end_names) {
  skip_sign(":");
  if (current().type != TokenType::block_end) unexpected("'%}' at the end of '" + std::string(tag) + "'");
  take();
  return body(end_names);
}

ast::Stmt Parser::statement() {
  const Nesting nesting(*this);
  const int line = current().line;
  if (current().type != TokenType::name) unexpected("the name of a tag");
  const std::string tag = take().text;
  open_tags_.push_back(tag);
  const auto node = [&]() -> ast::Stmt::Node {
    if (tag == "set") return set_statement();
    if (tag == "if") return if_statement();
    if (tag == "for") return for_statement();
    if (tag == "break" || tag == "continue") return loop_control(tag == "break");
    if (tag == "macro") return macro_statement();
    if (tag == "call") return call_statement();
    if (tag == "filter") return filter_statement();
    if (tag == "with") return with_statement();
    if (tag == "generation") return generation_statement();
    if (tag == "print") return print_statement(line);
    unknown_tag(tag);
  };
  ast::Stmt result{line, node()};
  open_tags_.pop_back();
  return result;
}

void Parser::unknown_tag(const std::string& name) const {
  const std::string open = open_tags_.size() > 1 ? " inside '" + open_tags_[open_tags_.size() - 2] + "'" : "";
  const bool is_closing = name == "else" || name == "elif" || name.substr(0, 3) == "end";
  if (is_closing) fail("the tag '" + name + "' does not belong to an open tag" + open);
  fail("there is no tag '" + name + "'" + open,
       is_known_elsewhere(name) ? "Jinja has it, chat templates are single files and do not" : "");
}

ast::Stmt::Node Parser::set_statement() {
  ast::Target assigned = target(true);
  if (skip_sign("=")) return ast::Set{std::move(assigned), tuple(TupleForm::full)};
  ExprPtr filters = skip_sign("|") ? filter_chain() : nullptr;
  ast::SetBlock block{std::move(assigned), std::move(filters), block_body("set", {"endset"})};
  take();
  return block;
}

ast::Stmt::Node Parser::if_statement() {
  ast::If node;
  while (true) {
    ExprPtr test = tuple(TupleForm::without_condition);
    node.branches.emplace_back(std::move(test), block_body("if", {"elif", "else", "endif"}));
    const std::string& end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      node.otherwise = block_body("else", {"endif"});
      take();
    }
    return node;
  }
}

ast::Stmt::Node Parser::for_statement() {
  ast::For node;
  const Replaced<int> all(loops_all_, loops_all_ + 1);
  node.target = target(false, "in");
  if (!skip_name("in")) unexpected("'in'");
  node.items = tuple(TupleForm::without_condition, "recursive");
  if (skip_name("if")) node.test = expression();
  if (current().is_name("recursive")) fail("recursive loops are not supported", "use a macro that calls itself");
  {
    const Replaced<int> loop(loops_, loops_ + 1);
    node.body = block_body("for", {"endfor", "else"});
  }
  if (take().text == "else") {
    node.otherwise = block_body("else", {"endfor"});
    take();
  }
  return node;
}

ast::Stmt::Node Parser::loop_control(bool is_break) {
  if (loops_ == 0) fail(std::string("'") + (is_break ? "break" : "continue") + "' outside a for loop");
  if (is_break) return ast::Break{};
  return ast::Continue{};
}

void Parser::signature(ast::MacroDefinition& definition) {
  expect_sign("(");
  while (!current().is_sign(")")) {
    if (!definition.parameters.empty()) expect_sign(",");
    ast::Parameter parameter{expect_name(), nullptr};
    for (const auto& other : definition.parameters) {
      if (other.name == parameter.name) fail("the parameter '" + parameter.name + "' appears twice");
    }
    const bool has_default = skip_sign("=");
    if (has_default) parameter.default_value = expression();
    if (!has_default && !definition.parameters.empty() && definition.parameters.back().default_value) {
      fail("a parameter without a default follows one that has a default");
    }
    definition.parameters.push_back(std::move(parameter));
  }
  expect_sign(")");
}

void Parser::macro_body(ast::MacroDefinition& definition, std::string_view tag, std::string_view end_name) {
  const Replaced<int> loops(loops_, 0);
  macros_.push_back(&definition);
  definition.body = block_body(tag, {end_name});
  macros_.pop_back();
  take();
  for (const auto& parameter : definition.parameters) {
    if (parameter.name == "caller" && definition.uses_caller && !parameter.default_value) {
      fail("a parameter named 'caller' needs a default");
    }
  }
}

ast::Stmt::Node Parser::macro_statement() {
  auto definition = std::make_shared<ast::MacroDefinition>();
  definition->name = expect_name();
  if (is_constant_name(definition->name)) fail("cannot assign to '" + definition->name + "'");
  signature(*definition);
  macro_body(*definition, "macro", "endmacro");
  return ast::Macro{std::move(definition)};
}

ast::Stmt::Node Parser::call_statement() {
  auto caller = std::make_shared<ast::MacroDefinition>();
  caller->name = "caller";
  if (current().is_sign("(")) signature(*caller);
  ExprPtr callee = expression();
  if (!std::holds_alternative<ast::Call>(callee->node)) fail("'call' needs the call of a macro");
  macro_body(*caller, "call", "endcall");
  return ast::CallBlock{std::move(caller), std::move(callee)};
}

ast::Stmt::Node Parser::filter_statement() {
  ExprPtr filters = filter_chain();
  ast::FilterBlock node{std::move(filters), block_body("filter", {"endfilter"})};
  take();
  return node;
}

ast::Stmt::Node Parser::with_statement() {
  ast::With node;
  while (current().type != TokenType::block_end && !current().is_sign(":")) {
    if (!node.assignments.empty()) expect_sign(",");
    ast::Target assigned = target(false);
    expect_sign("=");
    node.assignments.emplace_back(std::move(assigned), expression());
  }
  node.body = block_body("with", {"endwith"});
  take();
  return node;
}

ast::Stmt::Node Parser::generation_statement() {
  const Replaced<int> loops(loops_, 0);
  ast::Generation node{block_body("generation", {"endgeneration"})};
  take();
  return node;
}

// {% print a, b %} is {{ a }}{{ b }}.
ast::Stmt::Node Parser::print_statement(int line) {
  ast::Concat parts;
  while (current().type != TokenType::block_end) {
    if (!parts.parts.empty()) expect_sign(",");
    parts.parts.push_back(expression());
  }
  return ast::Print{make(line, std::move(parts))};
}

// Names separated by commas, or one of them.
ast::Target Parser::target(bool with_namespace, std::string_view end_name) {
  ast::Target tuple_target;
  tuple_target.is_tuple = true;
  bool has_comma = false;
  while (true) {
    if (!tuple_target.members.empty() && !skip_sign(",")) unexpected("','");
    if (at_tuple_end(end_name)) break;
    tuple_target.members.push_back(single_target(with_namespace));
    if (!current().is_sign(",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple_target;
  if (tuple_target.members.empty()) unexpected("a name to assign to");
  return std::move(tuple_target.members.front());
}

ast::Target Parser::single_target(bool with_namespace) {
  const Nesting nesting(*this);
  if (skip_sign("(")) {
    ast::Target inner = target(false);
    expect_sign(")");
    return inner;
  }
  ast::Target result;
  result.name = expect_name();
  if (is_constant_name(result.name)) fail("cannot assign to '" + result.name + "'");
  if (with_namespace && skip_sign(".")) {
    result.attribute = expect_name();
  } else if (result.name == "loop" && loops_all_ > 0) {
    fail("cannot assign to 'loop' inside a for loop");
  }
  return result;
}

}  // namespace sluice::text::jinja
