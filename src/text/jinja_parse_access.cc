#include "text/jinja_parse_node.h"
#include "text/jinja_parser.h"

// What follows a primary expression: attributes, subscripts, calls, filters and tests.
namespace sluice::text::jinja {

using ast::ExprPtr;

ExprPtr Parser::postfix(ExprPtr node) {
  while (true) {
    if (current().is_sign(".")) {
      node = attribute(std::move(node));
    } else if (current().is_sign("[")) {
      node = subscript(std::move(node));
    } else if (current().is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr node) {
  while (true) {
    if (skip_sign("|")) {
      node = filter(std::move(node));
    } else if (skip_name("is")) {
      node = test(std::move(node));
    } else if (current().is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::attribute(ExprPtr node) {
  const int line = take().line;
  if (current().type == TokenType::integer) {
    ExprPtr key = make(line, ast::Literal{Value(take().integer)});
    return make(line, ast::Item{std::move(node), std::move(key)});
  }
  return make(line, ast::Attribute{std::move(node), expect_name()});
}

ExprPtr Parser::subscript(ExprPtr node) {
  const int line = take().line;
  ExprPtr key;
  if (!current().is_sign(":")) key = expression();
  if (current().is_sign(":")) {
    node = slice(std::move(node), std::move(key), line);
  } else if (current().is_sign(",")) {
    ast::ListLiteral keys{SequenceKind::tuple, {}};
    keys.items.push_back(std::move(key));
    while (skip_sign(",")) keys.items.push_back(expression());
    node = make(line, ast::Item{std::move(node), make(line, std::move(keys))});
  } else {
    node = make(line, ast::Item{std::move(node), std::move(key)});
  }
  expect_sign("]");
  return node;
}

// From the first colon on; the start was read already and may be null.
ExprPtr Parser::slice(ExprPtr object, ExprPtr start, int line) {
  ast::Slice node{std::move(object), std::move(start), nullptr, nullptr};
  expect_sign(":");
  if (!current().is_sign(":") && !current().is_sign("]")) node.stop = expression();
  if (skip_sign(":") && !current().is_sign("]")) node.stride = expression();
  return make(line, std::move(node));
}

ExprPtr Parser::call(ExprPtr node) {
  const int line = current().line;
  ast::Arguments args = arguments();
  return make(line, ast::Call{std::move(node), std::move(args)});
}

ast::Arguments Parser::arguments() {
  ast::Arguments args;
  expect_sign("(");
  bool first = true;
  while (!current().is_sign(")")) {
    if (!first) {
      expect_sign(",");
      if (current().is_sign(")")) break;
    }
    first = false;
    argument(args);
  }
  expect_sign(")");
  return args;
}

void Parser::argument(ast::Arguments& args) {
  const char* order = "arguments of a call must be positional, named, *list, **dict, in this order";
  if (skip_sign("*")) {
    if (args.star || args.star_star) fail(order);
    args.star = expression();
  } else if (skip_sign("**")) {
    if (args.star_star) fail(order);
    args.star_star = expression();
  } else if (current().type == TokenType::name && ahead().is_sign("=")) {
    if (args.star_star) fail(order);
    std::string name = take().text;
    take();
    for (const auto& [other, value] : args.named) {
      if (other == name) fail("the argument '" + name + "' is given twice");
    }
    args.named.emplace_back(std::move(name), expression());
  } else {
    if (args.star || args.star_star || !args.named.empty()) fail(order);
    args.positional.push_back(expression());
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_sign(".")) name += "." + expect_name();
  return name;
}

// One filter after its "|".
ExprPtr Parser::filter(ExprPtr input) {
  const int line = current().line;
  const std::string name = dotted_name();
  const Filter* found = find_filter(name);
  if (found == nullptr) {
    fail_at(origin_, line, "there is no filter '" + name + "'",
            is_known_elsewhere(name) ? "Jinja has it, this engine does not" : "");
  }
  ast::Arguments args;
  if (current().is_sign("(")) args = arguments();
  check_applied_name(name, args);
  return make(line, ast::FilterCall{std::move(input), found, std::move(args)});
}

// map, select and their like take the name of a filter or a test as text: refuse one that does not exist now.
void Parser::check_applied_name(const std::string& filter, const ast::Arguments& args) const {
  const bool by_attribute = filter == "selectattr" || filter == "rejectattr";
  const bool takes_test = by_attribute || filter == "select" || filter == "reject";
  const std::size_t position = by_attribute ? 1 : 0;
  if ((!takes_test && filter != "map") || args.positional.size() <= position) return;
  const auto* literal = std::get_if<ast::Literal>(&args.positional[position]->node);
  if (literal == nullptr || !literal->value.is_text()) return;
  const std::string& name = literal->value.bytes();
  if (takes_test ? find_test(name) != nullptr : find_filter(name) != nullptr) return;
  fail("filter '" + filter + "': there is no " + (takes_test ? "test" : "filter") + " '" + name + "'");
}

// "name(args) | name ..." of a filter block, applied to its text.
ExprPtr Parser::filter_chain() {
  ExprPtr node = filter(nullptr);
  while (skip_sign("|")) node = filter(std::move(node));
  return node;
}

// One test after its "is".
ExprPtr Parser::test(ExprPtr input) {
  const int line = current().line;
  const bool negated = skip_name("not");
  const std::string name = dotted_name();
  const Test* found = find_test(name);
  if (found == nullptr) fail_at(origin_, line, "there is no test '" + name + "'");
  ast::Arguments args;
  const Token& next = current();
  const bool is_value =
      next.type == TokenType::string || next.type == TokenType::integer || next.type == TokenType::real ||
      next.is_sign("[") || next.is_sign("{") ||
      (next.type == TokenType::name && !next.is_name("else") && !next.is_name("or") && !next.is_name("and"));
  if (next.is_sign("(")) {
    args = arguments();
  } else if (is_value) {
    if (next.is_name("is")) fail("tests cannot be chained with 'is'");
    args.positional.push_back(postfix(primary()));
  }
  ExprPtr node = make(line, ast::TestCall{std::move(input), found, std::move(args)});
  return negated ? make(line, ast::Unary{ast::UnaryOp::logical_not, std::move(node)}) : std::move(node);
}

}  // namespace sluice::text::jinja
