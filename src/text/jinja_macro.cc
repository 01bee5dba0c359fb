#include <algorithm>

#include "text/jinja_eval.h"
#include "text/jinja_print.h"

// Macros: definition, call, and the call block, whose body is a macro that the called one knows as `caller`.
namespace sluice::text::jinja {
namespace {

class MacroValue : public Object {
 public:
  MacroValue(Evaluator& evaluator, std::shared_ptr<const ast::MacroDefinition> definition,
             const std::shared_ptr<Scope>& scope)
      : evaluator_(evaluator), definition_(std::move(definition)), scope_(scope) {}

  std::string type_name() const override { return "macro"; }
  std::string text(Context&) const override { return "<Macro '" + definition_->name + "'>"; }
  bool is_callable() const override { return true; }

  std::optional<Value> attribute(Context& context, std::string_view name) override {
    if (name != "name") return std::nullopt;
    return context.make_text(definition_->name);
  }

  Value call(Context& context, CallArgs& args) override {
    const std::shared_ptr<Scope> scope = scope_.lock();
    if (!scope) context.fail("macro '" + definition_->name + "' is called after the block that defined it has ended");
    return evaluator_.call_macro(*definition_, scope, args);
  }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<const ast::MacroDefinition> definition_;
  std::weak_ptr<Scope> scope_;  // a scope holds its macros, so a macro must not hold its scope
};

// Moves the named argument out of the list into `value`; false when there is none.
bool take_named(Context& context, CallArgs& args, const std::string& name, Value& value) {
  context.step(1 + args.named.size() / 8);
  for (auto it = args.named.begin(); it != args.named.end(); ++it) {
    if (it->first != name) continue;
    value = std::move(it->second);
    args.named.erase(it);
    return true;
  }
  return false;
}

}  // namespace

Value Evaluator::call_macro(const ast::MacroDefinition& macro, const std::shared_ptr<Scope>& outer, CallArgs& args) {
  const Context::Level level(context_);
  const Entered inner(*this, outer);
  bind_parameters(macro, args);
  std::string out;
  const Swapped<std::string*> output(out_, &out);
  execute(macro.body);
  return context_.make_text(std::move(out));
}

// Sets the parameters in the scope of the call. Defaults see the parameters before them, and later ones that were
// given.
void Evaluator::bind_parameters(const ast::MacroDefinition& macro, CallArgs& args) {
  const std::size_t count = macro.parameters.size();
  std::vector<bool> given(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i].name;
    Value value = Value::undefined("parameter '" + name + "' was not provided");
    given[i] = i < args.positional.size() || take_named(context_, args, name, value);
    scope_->set(name, i < args.positional.size() ? args.positional[i] : value);
  }
  bind_special(macro, args);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& parameter = macro.parameters[i];
    if (!given[i] && parameter.default_value) scope_->set(parameter.name, eval(*parameter.default_value));
  }
}

// caller, varargs and kwargs exist only in macros that mention them; others refuse what is left over.
void Evaluator::bind_special(const ast::MacroDefinition& macro, CallArgs& args) {
  const auto is_parameter = [&](std::string_view name) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(), [&](const auto& p) { return p.name == name; });
  };
  if (macro.uses_caller && !is_parameter("caller")) {
    Value caller;
    const bool present = take_named(context_, args, "caller", caller) && !caller.is_none();
    scope_->set("caller", present ? caller : Value::undefined("no caller defined"));
  }
  if (macro.uses_kwargs && !is_parameter("kwargs")) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : args.named) rest.emplace_back(context_.make_text(name), std::move(value));
    scope_->set("kwargs", context_.make_dict(std::move(rest)));
  } else if (!args.named.empty()) {
    context_.fail("macro '" + macro.name + "' takes no argument named '" + args.named.front().first + "'");
  }
  const std::size_t taken = std::min(args.positional.size(), macro.parameters.size());
  if (macro.uses_varargs && !is_parameter("varargs")) {
    const auto first = args.positional.begin() + static_cast<std::ptrdiff_t>(taken);
    scope_->set("varargs", context_.make_tuple(std::vector<Value>(first, args.positional.end())));
  } else if (args.positional.size() > taken) {
    context_.fail("macro '" + macro.name + "' takes at most " + std::to_string(taken) + " arguments");
  }
}

Evaluator::Flow Evaluator::run(const ast::Macro& node) {
  const auto macro = std::make_shared<MacroValue>(*this, node.definition, scope_);
  scope_->set(node.definition->name, context_.make_object(macro, 0));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const ast::CallBlock& node) {
  const Value caller = context_.make_object(std::make_shared<MacroValue>(*this, node.caller, scope_), 0);
  print(call(std::get<ast::Call>(node.call->node), &caller));
  return Flow::normal;
}

}  // namespace sluice::text::jinja
