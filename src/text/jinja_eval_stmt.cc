#include "text/jinja_eval.h"
#include "text/jinja_loop.h"
#include "text/jinja_namespace.h"
#include "text/jinja_print.h"

namespace sluice::text::jinja {
namespace {

// Ends a loop however its body is left.
class Finish {
 public:
  explicit Finish(Loop& loop) : loop_(loop) {}
  ~Finish() { loop_.finish(); }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;

 private:
  Loop& loop_;
};

}  // namespace

std::string Evaluator::render(const ast::Body& body) {
  std::string out;
  const Swapped<std::string*> output(out_, &out);
  execute(body);
  return out;
}

void Evaluator::emit(std::string_view text) {
  context_.charge_bytes(text.size());
  *out_ += text;
}

void Evaluator::print(const Value& value) {
  if (value.is_text()) return emit(value.bytes());
  emit(to_str(context_, value));
}

void Evaluator::assign(const ast::Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = collect(context_, value);
    if (items.size() != target.members.size()) {
      context_.fail("cannot unpack " + std::to_string(items.size()) + " values into " +
                    std::to_string(target.members.size()) + " names");
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.members[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return;
  }
  const Value* found = scope_->find(context_, target.name);
  auto* space = found != nullptr && found->is_object() ? dynamic_cast<Namespace*>(&found->object()) : nullptr;
  if (space == nullptr) context_.fail("cannot set an attribute of '" + target.name + "', which is no namespace");
  space->set(context_, target.attribute, value);
}

Evaluator::Flow Evaluator::execute(const ast::Body& body) {
  for (const ast::Stmt& stmt : body) {
    const Context::Level level(context_, stmt.line);
    context_.step();
    const Flow flow = std::visit([this](const auto& node) { return run(node); }, stmt.node);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const ast::Text& node) {
  emit(node.text);
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const ast::Print& node) {
  print(eval(*node.value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const ast::Set& node) {
  assign(node.target, eval(*node.value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::captured(const ast::Body& body, const ast::ExprPtr& filter, Value& result) {
  const Entered inner(*this);
  std::string out;
  Flow flow = Flow::normal;
  {
    const Swapped<std::string*> output(out_, &out);
    flow = execute(body);
  }
  result = context_.make_text(std::move(out));
  if (flow == Flow::normal && filter) {
    const Value text = result;
    const Swapped<const Value*> input(block_text_, &text);
    result = eval(*filter);
  }
  return flow;
}

Evaluator::Flow Evaluator::run(const ast::SetBlock& node) {
  Value result;
  const Flow flow = captured(node.body, node.filter, result);
  if (flow == Flow::normal) assign(node.target, result);
  return flow;
}

Evaluator::Flow Evaluator::run(const ast::FilterBlock& node) {
  Value result;
  const Flow flow = captured(node.body, node.filter, result);
  if (flow == Flow::normal) print(result);
  return flow;
}

Evaluator::Flow Evaluator::run(const ast::If& node) {
  for (const auto& [test, body] : node.branches) {
    if (eval(*test).truth()) return execute(body);
  }
  return execute(node.otherwise);
}

std::function<bool(const Value&)> Evaluator::loop_test(const ast::For& node) {
  if (!node.test) return nullptr;
  return [this, &node, outer = scope_](const Value& item) {
    const Entered inner(*this, outer);
    assign(node.target, item);
    return eval(*node.test).truth();
  };
}

Evaluator::Flow Evaluator::run(const ast::For& node) {
  const Value items = eval(*node.items);
  const auto loop = std::make_shared<Loop>(context_, items, loop_test(node));
  const Value loop_value = context_.make_object(loop, items.depth());
  const Finish finish(*loop);
  bool reached_end = false;  // as in Jinja, a turn that was left early does not count for `else`
  while (const auto item = loop->advance(context_)) {
    const Entered turn(*this);
    assign(node.target, *item);
    scope_->set("loop", loop_value);
    const Flow flow = execute(node.body);
    if (flow == Flow::leave_loop) break;
    if (flow == Flow::normal) reached_end = true;
  }
  if (reached_end || node.otherwise.empty()) return Flow::normal;
  const Entered inner(*this);
  return execute(node.otherwise);
}

Evaluator::Flow Evaluator::run(const ast::With& node) {
  std::vector<Value> values;
  for (const auto& [target, expr] : node.assignments) values.push_back(eval(*expr));
  const Entered inner(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, values[i]);
  return execute(node.body);
}

Evaluator::Flow Evaluator::run(const ast::Generation& node) {
  const Entered inner(*this);
  return execute(node.body);
}

}  // namespace sluice::text::jinja
