#include "text/jinja_methods.h"

#include <algorithm>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_print.h"

namespace sluice::text::jinja {
namespace {

// --- dict

Value dict_view(Context& context, const Value& self, SequenceKind kind) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    if (kind == SequenceKind::items) {
      items.push_back(context.make_pair(key, value));
    } else {
      items.push_back(kind == SequenceKind::keys ? key : value);
    }
  }
  return context.make_sequence(kind, std::move(items));
}

Value dict_items(Context& context, const Value& self, const Bound&) {
  return dict_view(context, self, SequenceKind::items);
}

Value dict_keys(Context& context, const Value& self, const Bound&) {
  return dict_view(context, self, SequenceKind::keys);
}

Value dict_values(Context& context, const Value& self, const Bound&) {
  return dict_view(context, self, SequenceKind::values);
}

Value dict_get(Context& context, const Value& self, const Bound& args) {
  if (!is_hashable(context, args.at(0))) {
    context.fail("dict.get: a value of type " + args.at(0).type_name() + " cannot be a key");
  }
  const Value* found = self.dict().find(context, args.at(0));
  return found != nullptr ? *found : args.get(1);
}

Value copy(Context&, const Value& self, const Bound&) { return self; }

constexpr Method kDictMethods[] = {
    {"items", "", dict_items}, {"keys", "", dict_keys}, {"values", "", dict_values},
    {"get", "_ _?", dict_get}, {"copy", "", copy},
};

// --- list, tuple, range

Value sequence_index(Context& context, const Value& self, const Bound& args) {
  const auto& items = self.sequence().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto position = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = args.integer(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t stop = position(2, size);
  for (std::int64_t i = position(1, 0); i < stop; ++i) {
    if (equal(context, items[static_cast<std::size_t>(i)], args.at(0))) return Value(i);
  }
  context.fail(self.type_name() + ".index: the value is not in the sequence");
}

Value sequence_count(Context& context, const Value& self, const Bound& args) {
  std::int64_t count = 0;
  for (const Value& item : self.sequence().items) count += equal(context, item, args.at(0)) ? 1 : 0;
  return Value(count);
}

constexpr Method kListMethods[] = {
    {"index", "_ _? _?", sequence_index}, {"count", "_", sequence_count}, {"copy", "", copy}};

// --- binding

constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Method* find_method(std::span<const Method> methods, std::string_view name) {
  for (const Method& method : methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

const Method* method_of(const Value& object, std::string_view name) {
  if (object.is_text()) {
    const Method* found = find_method(text_methods(), name);
    return found != nullptr ? found : find_method(text_query_methods(), name);
  }
  if (object.is_dict()) return find_method(kDictMethods, name);
  const bool is_tuple_like = object.is_kind(SequenceKind::tuple) || object.is_kind(SequenceKind::range);
  if (is_tuple_like && name == "copy") return nullptr;
  if (is_tuple_like || object.is_kind(SequenceKind::list)) return find_method(kListMethods, name);
  return nullptr;
}

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const Method& method) : self_(std::move(self)), method_(method) {}

  std::string type_name() const override { return "method"; }
  std::string text(Context&) const override {
    return "<method " + std::string(method_.name) + " of " + self_.type_name() + ">";
  }
  bool is_callable() const override { return true; }
  Value call(Context& context, CallArgs& args) override {
    context.charge_reading(self_);
    const Bound bound(context, self_.type_name() + "." + std::string(method_.name), method_.parameters, args);
    return method_.run(context, self_, bound);
  }

 private:
  Value self_;
  const Method& method_;
};

}  // namespace

std::optional<Value> bind_method(Context& context, const Value& object, std::string_view name) {
  if (const Method* method = method_of(object, name)) {
    return context.make_object(std::make_shared<BoundMethod>(object, *method), object.depth());
  }
  const bool mutates = (object.is_kind(SequenceKind::list) && is_one_of(kListMutators, name)) ||
                       (object.is_dict() && is_one_of(kDictMutators, name));
  if (!mutates) return std::nullopt;
  return Value::undefined(object.type_name() + "." + std::string(name) +
                          " would change the value, which templates are not allowed to do");
}

}  // namespace sluice::text::jinja
