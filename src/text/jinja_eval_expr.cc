#include "text/jinja_compare.h"
#include "text/jinja_eval.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace sluice::text::jinja {

const Value* Scope::find(Context& context, std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    context.step(1 + scope->variables_.size() / 16);
    for (const auto& [key, value] : scope->variables_) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(std::string(name), std::move(value));
}

Value Evaluator::eval(const ast::Expr& expr) {
  const Context::Level level(context_, expr.line);
  context_.step();
  return std::visit([this](const auto& node) { return on(node); }, expr.node);
}

Value Evaluator::on(const ast::Name& node) {
  if (const Value* value = scope_->find(context_, node.name)) return *value;
  if (auto function = find_function(context_, node.name)) return *std::move(function);
  return Value::undefined("'" + node.name + "' is undefined");
}

Value Evaluator::on(const ast::ListLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(eval(*item));
  return context_.make_sequence(node.kind, std::move(items));
}

Value Evaluator::on(const ast::DictLiteral& node) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : node.entries) {
    Value evaluated_key = eval(*key);
    entries.emplace_back(std::move(evaluated_key), eval(*value));
  }
  return context_.make_dict(std::move(entries));
}

Value Evaluator::on(const ast::Unary& node) {
  const Value operand = eval(*node.operand);
  if (node.op == ast::UnaryOp::logical_not) return Value(!operand.truth());
  return node.op == ast::UnaryOp::negate ? negate(context_, operand) : unary_plus(context_, operand);
}

Value Evaluator::on(const ast::Binary& node) {
  const Value left = eval(*node.left);
  return apply(context_, node.op, left, eval(*node.right));
}

Value Evaluator::on(const ast::Logic& node) {
  Value left = eval(*node.left);
  const bool stop = left.truth() == (node.op == ast::LogicOp::logical_or);
  return stop ? left : eval(*node.right);
}

Value Evaluator::on(const ast::Concat& node) {
  std::string out;
  for (const auto& part : node.parts) {
    const Value value = eval(*part);
    const std::string text = to_str(context_, value);
    context_.charge_bytes(text.size());
    out += text;
  }
  return context_.make_text(std::move(out));
}

Value Evaluator::on(const ast::Compare& node) {
  Value left = eval(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = eval(*operand);
    if (!holds(op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

bool Evaluator::holds(ast::CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case ast::CompareOp::equal:
      return equal(context_, left, right);
    case ast::CompareOp::not_equal:
      return !equal(context_, left, right);
    case ast::CompareOp::less:
      return less(context_, left, right);
    case ast::CompareOp::less_equal:
      return less(context_, left, right) || equal(context_, left, right);
    case ast::CompareOp::greater:
      return less(context_, right, left);
    case ast::CompareOp::greater_equal:
      return less(context_, right, left) || equal(context_, left, right);
    case ast::CompareOp::in:
      return contains(context_, right, left);
    default:
      return !contains(context_, right, left);
  }
}

Value Evaluator::on(const ast::Conditional& node) {
  if (eval(*node.test).truth()) return eval(*node.then);
  if (node.otherwise) return eval(*node.otherwise);
  return Value::undefined("an if expression without else was false and has no value");
}

Value Evaluator::on(const ast::Attribute& node) { return get_attribute(context_, eval(*node.object), node.name); }

Value Evaluator::on(const ast::Item& node) {
  const Value object = eval(*node.object);
  return get_item(context_, object, eval(*node.key));
}

Value Evaluator::on(const ast::Slice& node) {
  const Value object = eval(*node.object);
  const Value start = eval_or(node.start, Value());
  const Value stop = eval_or(node.stop, Value());
  return get_slice(context_, object, start, stop, eval_or(node.stride, Value()));
}

CallArgs Evaluator::evaluate(const ast::Arguments& arguments) {
  CallArgs args;
  for (const auto& expr : arguments.positional) args.positional.push_back(eval(*expr));
  for (const auto& [name, expr] : arguments.named) args.named.emplace_back(name, eval(*expr));
  if (arguments.star) {
    for (Value& item : collect(context_, eval(*arguments.star))) args.positional.push_back(std::move(item));
  }
  if (arguments.star_star) {
    const Value more = eval(*arguments.star_star);
    if (!more.is_dict()) context_.fail("the value after ** in a call must be a dict, not " + more.type_name());
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_text()) context_.fail("the keys after ** in a call must be strings");
      for (const auto& [name, other] : args.named) {
        context_.step();
        if (name == key.bytes()) context_.fail("the argument '" + name + "' is given twice");
      }
      args.named.emplace_back(key.bytes(), value);
    }
  }
  return args;
}

Value Evaluator::call(const ast::Call& node, const Value* caller) {
  const Value callee = eval(*node.callee);
  if (callee.is_undefined()) context_.fail_undefined(callee);
  if (!callee.is_object() || !callee.object().is_callable()) {
    context_.fail("a value of type " + callee.type_name() + " cannot be called");
  }
  CallArgs args = evaluate(node.arguments);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return callee.object().call(context_, args);
}

Value Evaluator::on(const ast::FilterCall& node) {
  const Value input = node.input ? eval(*node.input) : *block_text_;
  CallArgs args = evaluate(node.arguments);
  return run_filter(context_, *node.filter, input, args);
}

Value Evaluator::on(const ast::TestCall& node) {
  const Value input = eval(*node.input);
  CallArgs args = evaluate(node.arguments);
  return Value(run_test(context_, *node.test, input, args));
}

}  // namespace sluice::text::jinja
