#include "text/jinja_value.h"

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {

const Value* Dict::find(Context& context, const Value& key) const {
  for (const auto& [name, value] : entries) {
    if (equal(context, name, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(Context& context, std::string_view key) const {
  context.step(1 + entries.size() / 8);
  for (const auto& [name, value] : entries) {
    if (name.is_text() && name.bytes() == key) return &value;
  }
  return nullptr;
}

std::optional<Value> Object::attribute(Context&, std::string_view) { return std::nullopt; }

Value Object::call(Context& context, CallArgs&) { context.fail("a " + type_name() + " cannot be called"); }

std::optional<Value> Object::next(Context& context) { context.fail("a " + type_name() + " cannot be iterated over"); }

Value Value::undefined(std::string why) {
  Value v;
  v.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return v;
}

Value Value::literal(std::string bytes) {
  Text text;
  text.code_points = count_code_points(bytes);
  text.bytes = std::move(bytes);
  return std::make_shared<const Text>(std::move(text));
}

std::int64_t Value::integer() const {
  if (const bool* v = std::get_if<bool>(&data_)) return *v ? 1 : 0;
  return *std::get_if<std::int64_t>(&data_);
}

double Value::real() const {
  if (const double* v = std::get_if<double>(&data_)) return *v;
  return static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_float()) return real() != 0.0;
  if (is_number()) return integer() != 0;
  if (is_text()) return !bytes().empty();
  if (is_sequence()) return !sequence().items.empty();
  if (is_dict()) return !dict().entries.empty();
  return true;
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth;
  if (is_object()) return object().depth;
  return 0;
}

std::string Value::type_name() const {
  static constexpr const char* kSequenceNames[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_sequence()) return kSequenceNames[static_cast<int>(sequence().kind)];
  if (is_dict()) return "dict";
  return object().type_name();
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_sequence()) return &sequence() == &other.sequence();
  if (is_dict()) return &dict() == &other.dict();
  if (is_object()) return &object() == &other.object();
  if (is_text()) return &text() == &other.text() || bytes() == other.bytes();
  if (is_float()) return real() == other.real();
  return !is_number() || integer() == other.integer();
}

}  // namespace sluice::text::jinja
