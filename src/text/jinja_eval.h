// Runs a syntax tree: evaluates expressions, keeps scopes, collects the output.
//
// One Evaluator a render, on one thread; made by Template::render. Scopes follow Jinja: a loop turn, a macro call, a
// block set, a filter block and a with block each have their own, and an assignment inside never changes a variable
// outside.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"

namespace sluice::text::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  // The variable here or in an enclosing scope, or nullptr.
  const Value* find(Context& context, std::string_view name) const;
  void set(std::string_view name, Value value);

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, Value>> variables_;
};

class Evaluator {
 public:
  Evaluator(Context& context, std::shared_ptr<Scope> globals) : context_(context), scope_(std::move(globals)) {}

  // The text that the statements print.
  std::string render(const ast::Body& body);
  // Called by macro values. `outer` is the scope in which the macro was defined.
  Value call_macro(const ast::MacroDefinition& macro, const std::shared_ptr<Scope>& outer, CallArgs& args);

 private:
  enum class Flow { normal, leave_loop, next_turn };

  Value eval(const ast::Expr& expr);
  Value eval_or(const ast::ExprPtr& expr, Value otherwise) { return expr ? eval(*expr) : std::move(otherwise); }
  Value on(const ast::Literal& node) { return node.value; }
  Value on(const ast::Name& node);
  Value on(const ast::ListLiteral& node);
  Value on(const ast::DictLiteral& node);
  Value on(const ast::Unary& node);
  Value on(const ast::Binary& node);
  Value on(const ast::Logic& node);
  Value on(const ast::Concat& node);
  Value on(const ast::Compare& node);
  Value on(const ast::Conditional& node);
  Value on(const ast::Attribute& node);
  Value on(const ast::Item& node);
  Value on(const ast::Slice& node);
  Value on(const ast::Call& node) { return call(node, nullptr); }
  Value on(const ast::FilterCall& node);
  Value on(const ast::TestCall& node);
  Value call(const ast::Call& node, const Value* caller);
  bool holds(ast::CompareOp op, const Value& left, const Value& right);
  CallArgs evaluate(const ast::Arguments& arguments);

  Flow execute(const ast::Body& body);
  Flow run(const ast::Text& node);
  Flow run(const ast::Print& node);
  Flow run(const ast::Set& node);
  Flow run(const ast::SetBlock& node);
  Flow run(const ast::If& node);
  Flow run(const ast::For& node);
  Flow run(const ast::Break&) { return Flow::leave_loop; }
  Flow run(const ast::Continue&) { return Flow::next_turn; }
  Flow run(const ast::Macro& node);
  Flow run(const ast::CallBlock& node);
  Flow run(const ast::FilterBlock& node);
  Flow run(const ast::With& node);
  Flow run(const ast::Generation& node);

  void emit(std::string_view text);
  void print(const Value& value);
  void assign(const ast::Target& target, const Value& value);
  // Runs `body` in a new scope with its output going to `out`; `filter`, if any, is applied to that output.
  Flow captured(const ast::Body& body, const ast::ExprPtr& filter, Value& result);
  void bind_parameters(const ast::MacroDefinition& macro, CallArgs& args);
  void bind_special(const ast::MacroDefinition& macro, CallArgs& args);
  std::function<bool(const Value&)> loop_test(const ast::For& node);

  // Replaces a member for the life of the guard.
  template <class T>
  class Swapped {
   public:
    Swapped(T& slot, T value) : slot_(slot), old_(std::move(slot)) { slot_ = std::move(value); }
    ~Swapped() { slot_ = std::move(old_); }
    Swapped(const Swapped&) = delete;
    Swapped& operator=(const Swapped&) = delete;

   private:
    T& slot_;
    T old_;
  };
  // Enters a scope below `parent` for the life of the guard.
  class Entered : public Swapped<std::shared_ptr<Scope>> {
   public:
    Entered(Evaluator& evaluator, const std::shared_ptr<Scope>& parent)
        : Swapped(evaluator.scope_, std::make_shared<Scope>(parent)) {}
    explicit Entered(Evaluator& evaluator) : Entered(evaluator, std::shared_ptr<Scope>(evaluator.scope_)) {}
  };

  Context& context_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  const Value* block_text_ = nullptr;  // what the filters of a block start from
};

}  // namespace sluice::text::jinja
