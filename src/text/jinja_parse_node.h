// Making expression nodes with the height of their subtree, for the parts of the parser.
//
// Chains such as a + b + c + ... nest to the left without any bracket; the height keeps them within the stack.
#pragma once

#include <algorithm>
#include <memory>

#include "text/jinja_parser.h"

namespace sluice::text::jinja {

inline constexpr int kMaxExpressionHeight = 400;

class HeightOf {
 public:
  int operator()(const ast::Literal&) { return 0; }
  int operator()(const ast::Name&) { return 0; }
  int operator()(const ast::ListLiteral& n) { return of(n.items); }
  int operator()(const ast::DictLiteral& n) {
    int height = 0;
    for (const auto& [key, value] : n.entries) height = std::max({height, of(key), of(value)});
    return height;
  }
  int operator()(const ast::Unary& n) { return of(n.operand); }
  int operator()(const ast::Binary& n) { return std::max(of(n.left), of(n.right)); }
  int operator()(const ast::Logic& n) { return std::max(of(n.left), of(n.right)); }
  int operator()(const ast::Concat& n) { return of(n.parts); }
  int operator()(const ast::Compare& n) {
    int height = of(n.first);
    for (const auto& [op, operand] : n.rest) height = std::max(height, of(operand));
    return height;
  }
  int operator()(const ast::Conditional& n) { return std::max({of(n.then), of(n.test), of(n.otherwise)}); }
  int operator()(const ast::Attribute& n) { return of(n.object); }
  int operator()(const ast::Item& n) { return std::max(of(n.object), of(n.key)); }
  int operator()(const ast::Slice& n) { return std::max({of(n.object), of(n.start), of(n.stop), of(n.stride)}); }
  int operator()(const ast::Call& n) { return std::max(of(n.callee), of(n.arguments)); }
  int operator()(const ast::FilterCall& n) { return std::max(of(n.input), of(n.arguments)); }
  int operator()(const ast::TestCall& n) { return std::max(of(n.input), of(n.arguments)); }

 private:
  static int of(const ast::ExprPtr& e) { return e ? e->height : 0; }
  static int of(const std::vector<ast::ExprPtr>& list) {
    int height = 0;
    for (const auto& e : list) height = std::max(height, of(e));
    return height;
  }
  static int of(const ast::Arguments& a) {
    int height = std::max({of(a.positional), of(a.star), of(a.star_star)});
    for (const auto& [name, e] : a.named) height = std::max(height, of(e));
    return height;
  }
};

template <class Node>
ast::ExprPtr Parser::make(int line, Node node) {
  auto expr = std::make_unique<ast::Expr>();
  expr->line = line;
  expr->height = 1 + HeightOf()(node);
  if (expr->height > kMaxExpressionHeight) {
    fail("an expression has more than " + std::to_string(kMaxExpressionHeight) + " nested operations");
  }
  expr->node = std::move(node);
  return expr;
}

}  // namespace sluice::text::jinja
