#include <algorithm>

#include "text/jinja_parse_node.h"
#include "text/jinja_parser.h"

namespace sluice::text::jinja {

using ast::ExprPtr;

namespace {

constexpr int kMaxNesting = 100;

}  // namespace

// ---------------------------------------------------------------- tokens

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNesting)
    parser_.fail("tags and brackets nest deeper than " + std::to_string(kMaxNesting));
  ++parser_.nesting_;
}

const Token& Parser::take() {
  const Token& token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_sign(std::string_view sign) {
  if (!current().is_sign(sign)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected("'" + std::string(sign) + "'");
}

std::string Parser::expect_name() {
  if (current().type != TokenType::name) unexpected("a name");
  return take().text;
}

void Parser::fail(const std::string& what, const std::string& hint) const {
  fail_at(origin_, current().line, what, hint);
}

void Parser::unexpected(const std::string& expected) const {
  std::string where = open_tags_.empty() ? "" : " in '" + open_tags_.back() + "'";
  fail("found " + describe(current()) + where + ", expected " + expected);
}

// ---------------------------------------------------------------- operators

ExprPtr Parser::expression() {
  const Nesting nesting(*this);
  int line = current().line;
  ExprPtr node = logical_or();
  while (skip_name("if")) {
    ExprPtr test = logical_or();
    ExprPtr otherwise = skip_name("else") ? expression() : nullptr;
    node = make(line, ast::Conditional{std::move(node), std::move(test), std::move(otherwise)});
    line = current().line;
  }
  return node;
}

ExprPtr Parser::logical_or() {
  const int line = current().line;
  ExprPtr left = logical_and();
  while (skip_name("or")) {
    ExprPtr right = logical_and();
    left = make(line, ast::Logic{ast::LogicOp::logical_or, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::logical_and() {
  const int line = current().line;
  ExprPtr left = logical_not();
  while (skip_name("and")) {
    ExprPtr right = logical_not();
    left = make(line, ast::Logic{ast::LogicOp::logical_and, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::logical_not() {
  const int line = current().line;
  if (!skip_name("not")) return compare();
  const Nesting nesting(*this);
  return make(line, ast::Unary{ast::UnaryOp::logical_not, logical_not()});
}

ExprPtr Parser::compare() {
  const int line = current().line;
  ExprPtr first = sum();
  ast::Compare node;
  while (comparison(node)) {
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return make(line, std::move(node));
}

// One more operator and operand of a comparison; false when none follows.
bool Parser::comparison(ast::Compare& node) {
  static constexpr std::pair<std::string_view, ast::CompareOp> kSigns[] = {
      {"==", ast::CompareOp::equal},      {"!=", ast::CompareOp::not_equal}, {"<", ast::CompareOp::less},
      {"<=", ast::CompareOp::less_equal}, {">", ast::CompareOp::greater},    {">=", ast::CompareOp::greater_equal}};
  if (current().is_name("not") && ahead().is_name("in")) {
    take();
    take();
    node.rest.emplace_back(ast::CompareOp::not_in, sum());
    return true;
  }
  if (skip_name("in")) {
    node.rest.emplace_back(ast::CompareOp::in, sum());
    return true;
  }
  for (const auto& [sign, op] : kSigns) {
    if (!skip_sign(sign)) continue;
    node.rest.emplace_back(op, sum());
    return true;
  }
  return false;
}

ExprPtr Parser::sum() {
  const int line = current().line;
  ExprPtr left = concat();
  while (current().is_sign("+") || current().is_sign("-")) {
    const BinaryOp op = take().text == "+" ? BinaryOp::add : BinaryOp::subtract;
    ExprPtr right = concat();
    left = make(line, ast::Binary{op, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::concat() {
  const int line = current().line;
  ExprPtr first = product();
  if (!current().is_sign("~")) return first;
  ast::Concat node;
  node.parts.push_back(std::move(first));
  while (skip_sign("~")) node.parts.push_back(product());
  return make(line, std::move(node));
}

ExprPtr Parser::product() {
  static constexpr std::pair<std::string_view, BinaryOp> kSigns[] = {
      {"*", BinaryOp::multiply}, {"/", BinaryOp::divide}, {"//", BinaryOp::floor_divide}, {"%", BinaryOp::modulo}};
  const int line = current().line;
  ExprPtr left = power();
  while (true) {
    const auto* found = std::find_if(std::begin(kSigns), std::end(kSigns),
                                     [&](const auto& entry) { return current().is_sign(entry.first); });
    if (found == std::end(kSigns)) return left;
    take();
    ExprPtr right = power();
    left = make(line, ast::Binary{found->second, std::move(left), std::move(right)});
  }
}

ExprPtr Parser::power() {
  const int line = current().line;
  ExprPtr left = unary(true);
  while (skip_sign("**")) {
    ExprPtr right = unary(true);
    left = make(line, ast::Binary{BinaryOp::power, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  const int line = current().line;
  ExprPtr node;
  if (current().is_sign("-") || current().is_sign("+")) {
    const Nesting nesting(*this);
    const ast::UnaryOp op = take().text == "-" ? ast::UnaryOp::negate : ast::UnaryOp::plus;
    node = make(line, ast::Unary{op, unary(false)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

// ---------------------------------------------------------------- primaries

ExprPtr Parser::primary() {
  const int line = current().line;
  switch (current().type) {
    case TokenType::name:
      return name_or_constant();
    case TokenType::string: {
      std::string text;
      while (current().type == TokenType::string) text += take().text;
      return make(line, ast::Literal{Value::literal(std::move(text))});
    }
    case TokenType::integer:
      return make(line, ast::Literal{Value(take().integer)});
    case TokenType::real:
      return make(line, ast::Literal{Value(take().real)});
    default:
      break;
  }
  if (skip_sign("(")) {
    ExprPtr node = tuple(TupleForm::parenthesised);
    expect_sign(")");
    return node;
  }
  if (skip_sign("[")) return list();
  if (skip_sign("{")) return dict();
  unexpected("an expression");
}

ExprPtr Parser::name_or_constant() {
  const Token& token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(token.line, ast::Literal{Value(true)});
  if (name == "false" || name == "False") return make(token.line, ast::Literal{Value(false)});
  if (name == "none" || name == "None") return make(token.line, ast::Literal{Value()});
  for (ast::MacroDefinition* macro : macros_) {
    macro->uses_caller = macro->uses_caller || name == "caller";
    macro->uses_varargs = macro->uses_varargs || name == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
  }
  return make(token.line, ast::Name{name});
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return current().type == TokenType::print_end || current().type == TokenType::block_end || current().is_sign(")") ||
         (!end_name.empty() && current().is_name(end_name));
}

// Expressions separated by commas: a tuple, or the expression itself when there is one and no comma.
ExprPtr Parser::tuple(TupleForm form, std::string_view end_name) {
  const int line = current().line;
  ast::ListLiteral node{SequenceKind::tuple, {}};
  bool is_tuple = false;
  while (true) {
    if (!node.items.empty()) expect_sign(",");
    if (at_tuple_end(end_name)) break;
    node.items.push_back(form == TupleForm::without_condition ? logical_or() : expression());
    if (!current().is_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node.items.empty()) return std::move(node.items.front());
  if (!is_tuple && form != TupleForm::parenthesised) unexpected("an expression");
  return make(line, std::move(node));
}

ExprPtr Parser::list() {
  const int line = current().line;
  ast::ListLiteral node{SequenceKind::list, {}};
  while (!current().is_sign("]")) {
    if (!node.items.empty()) expect_sign(",");
    if (current().is_sign("]")) break;
    node.items.push_back(expression());
  }
  expect_sign("]");
  return make(line, std::move(node));
}

ExprPtr Parser::dict() {
  const int line = current().line;
  ast::DictLiteral node;
  while (!current().is_sign("}")) {
    if (!node.entries.empty()) expect_sign(",");
    if (current().is_sign("}")) break;
    ExprPtr key = expression();
    expect_sign(":");
    node.entries.emplace_back(std::move(key), expression());
  }
  expect_sign("}");
  return make(line, std::move(node));
}

}  // namespace sluice::text::jinja
