#include <limits>

#include "text/jinja_builtins.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_namespace.h"
#include "text/jinja_print.h"
#include "text/jinja_time.h"

// Global functions, and namespaces.
namespace sluice::text::jinja {

std::string Namespace::text(Context& context) const {
  std::string out = "<Namespace {";
  const char* separator = "";
  for (const auto& [name, value] : attributes_) {
    out += separator + to_repr(context, context.make_text(name)) + ": " + to_repr(context, value);
    separator = ", ";
  }
  return out + "}>";
}

std::optional<Value> Namespace::attribute(Context& context, std::string_view name) {
  context.step(1 + attributes_.size() / 8);
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(Context& context, const std::string& name, Value value) {
  context.step(1 + attributes_.size() / 8);
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

namespace {

constexpr std::int64_t kMaxRange = 100'000;  // the limit of Jinja's sandbox

// Entries of dict(mapping_or_pairs, name=value, ...).
std::vector<std::pair<Value, Value>> dict_entries(Context& context, const Bound& args) {
  const CallArgs& all = args.all();
  if (all.positional.size() > 1) context.fail(args.callee() + " takes at most one positional argument");
  std::vector<std::pair<Value, Value>> entries;
  if (!all.positional.empty() && all.positional[0].is_dict()) {
    entries = all.positional[0].dict().entries;
  } else if (!all.positional.empty()) {
    for (const Value& item : collect(context, all.positional[0])) {
      const std::vector<Value> pair = collect(context, item);
      if (pair.size() != 2) context.fail(args.callee() + " takes pairs of key and value");
      entries.emplace_back(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : all.named) entries.emplace_back(context.make_text(name), value);
  return entries;
}

Value make_dict(Context& context, const Bound& args) { return context.make_dict(dict_entries(context, args)); }

Value make_namespace(Context& context, const Bound& args) {
  auto result = std::make_unique<Namespace>(std::vector<std::pair<std::string, Value>>());
  for (auto& [key, value] : dict_entries(context, args)) {
    if (!key.is_text()) context.fail("namespace: the name of an attribute is a str, not " + key.type_name());
    result->set(context, key.bytes(), std::move(value));
  }
  return context.adopt(std::move(result));
}

Value range(Context& context, const Bound& args) {
  const bool one = !args.has(1);
  const std::int64_t start = one ? 0 : args.integer(0, 0);
  const std::int64_t stop = args.integer(one ? 0 : 1, 0);
  const std::int64_t stride = args.integer(2, 1);
  if (stride == 0) context.fail("range: the stride is 0");
  std::vector<Value> items;
  std::int64_t at = start;
  while (stride > 0 ? at < stop : at > stop) {
    if (static_cast<std::int64_t>(items.size()) >= kMaxRange) {
      context.fail("range: more than " + std::to_string(kMaxRange) + " numbers");
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  return context.make_range(start, stop, stride, std::move(items));
}

Value raise_exception(Context& context, const Bound& args) {
  context.fail("the template refuses this conversation: " + to_str(context, args.at(0)));
}

Value strftime_now(Context& context, const Bound& args) {
  return context.make_text(format_time(context, args.text(0), context.clock()()));
}

struct FunctionRow {
  std::string_view name;
  std::string_view parameters;
  Value (*run)(Context&, const Bound& args);
};

constexpr FunctionRow kFunctions[] = {
    {"range", "_ _? _?", range},
    {"dict", "*", make_dict},
    {"namespace", "*", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

class Function : public Object {
 public:
  explicit Function(const FunctionRow& row) : row_(row) {}

  std::string type_name() const override { return "function"; }
  std::string text(Context&) const override { return "<function " + std::string(row_.name) + ">"; }
  bool is_callable() const override { return true; }
  Value call(Context& context, CallArgs& args) override {
    return row_.run(context, Bound(context, std::string(row_.name), row_.parameters, args));
  }

 private:
  const FunctionRow& row_;
};

}  // namespace

std::optional<Value> find_function(Context& context, std::string_view name) {
  // Jinja's `self` holds the blocks of the template; chat templates have none.
  if (name == "self") return context.adopt(std::make_unique<Namespace>(std::vector<std::pair<std::string, Value>>()));
  for (const FunctionRow& row : kFunctions) {
    if (row.name == name) return context.make_object(std::make_shared<Function>(row), 0);
  }
  return std::nullopt;
}

}  // namespace sluice::text::jinja
