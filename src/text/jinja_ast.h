// The syntax tree of a template: expressions and statements as plain structs.
//
// Built once by the parser, then never changed; any number of renders on any threads read it at the same time. Filters
// and tests are resolved already. `height` bounds the recursion of everything that walks the tree.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_value.h"

namespace sluice::text::jinja::ast {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *args, or null
  ExprPtr star_star;  // **kwargs, or null
};

enum class UnaryOp { logical_not, negate, plus };
enum class LogicOp { logical_and, logical_or };
enum class CompareOp { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  SequenceKind kind = SequenceKind::list;  // or tuple
  std::vector<ExprPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Unary {
  UnaryOp op = UnaryOp::logical_not;
  ExprPtr operand;
};
struct Binary {
  BinaryOp op = BinaryOp::add;
  ExprPtr left, right;
};
struct Logic {
  LogicOp op = LogicOp::logical_and;
  ExprPtr left, right;
};
struct Concat {
  std::vector<ExprPtr> parts;
};
struct Compare {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;  // a < b < c compares pairwise
};
struct Conditional {
  ExprPtr then, test, otherwise;  // `otherwise` may be null: undefined
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Item {
  ExprPtr object, key;
};
struct Slice {
  ExprPtr object, start, stop, stride;  // all but the object may be null
};
struct Call {
  ExprPtr callee;
  Arguments arguments;
};
struct FilterCall {
  ExprPtr input;  // null: the text of the block that is filtered
  const Filter* filter = nullptr;
  Arguments arguments;
};
struct TestCall {
  ExprPtr input;
  const Test* test = nullptr;
  Arguments arguments;
};

struct Expr {
  using Node = std::variant<Literal, Name, ListLiteral, DictLiteral, Unary, Binary, Logic, Concat, Compare, Conditional,
                            Attribute, Item, Slice, Call, FilterCall, TestCall>;
  int line = 0;
  int height = 0;  // of this subtree
  Node node;
};

struct Stmt;
using Body = std::vector<Stmt>;

// What can stand left of "=": a name, a namespace attribute, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;        // of the namespace `name`, or empty
  std::vector<Target> members;  // of a tuple
  bool is_tuple = false;
};

struct Text {
  std::string text;
};
struct Print {
  ExprPtr value;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;  // a chain of filters, or null
  Body body;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr items;
  ExprPtr test;  // or null
  Body body;
  Body otherwise;
};
struct Break {};
struct Continue {};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // or null
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct Macro {
  std::shared_ptr<const MacroDefinition> definition;
};
struct CallBlock {
  std::shared_ptr<const MacroDefinition> caller;  // the body as a macro
  ExprPtr call;
};
struct FilterBlock {
  ExprPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
struct Generation {  // marks what the assistant says; printed like any other text, in a scope of its own
  Body body;
};

struct Stmt {
  using Node = std::variant<Text, Print, Set, SetBlock, If, For, Break, Continue, Macro, CallBlock, FilterBlock, With,
                            Generation>;
  int line = 0;
  Node node;
};

}  // namespace sluice::text::jinja::ast
