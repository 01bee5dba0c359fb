#include <algorithm>
#include <limits>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_methods.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 64;

Value undefined_element(Context& context, const Value& object, const Value& key) {
  if (key.is_text()) {
    return Value::undefined("a value of type " + object.type_name() + " has no attribute '" + key.bytes() + "'");
  }
  const std::string shown = key.depth() > 0 ? "of type " + key.type_name() : to_repr(context, key);
  return Value::undefined("a value of type " + object.type_name() + " has no element " + shown);
}

// Byte range of the code points [first, last) of a text.
std::string_view code_point_range(const Text& text, std::size_t first, std::size_t last) {
  const std::string_view bytes = text.bytes;
  if (text.code_points == bytes.size()) return bytes.substr(first, last - first);
  const std::size_t begin = offset_of(bytes, first);
  return bytes.substr(begin, offset_of(bytes.substr(begin), last - first));
}

std::optional<Value> element_at(Context& context, const Value& object, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(*length_of(object));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  if (object.is_sequence()) return object.sequence().items[at];
  context.step(1 + at / kBytesPerStep);
  return context.make_text(std::string(code_point_range(object.text(), at, at + 1)), object.text().is_markup);
}

std::optional<Value> find_element(Context& context, const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (!is_hashable(context, key)) return std::nullopt;
    const Value* found = object.dict().find(context, key);
    return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
  }
  const bool indexable = object.is_text() || object.is_kind(SequenceKind::list) ||
                         object.is_kind(SequenceKind::tuple) || object.is_kind(SequenceKind::range);
  if (!indexable || !key.is_integral()) return std::nullopt;
  return element_at(context, object, key.integer());
}

// Bounds of a slice as Python's slice.indices() gives them.
struct Bounds {
  std::int64_t start = 0, stop = 0, stride = 1;

  std::size_t count() const {
    if (stride > 0) return stop > start ? static_cast<std::size_t>((stop - start - 1) / stride + 1) : 0;
    return start > stop ? static_cast<std::size_t>((start - stop - 1) / -stride + 1) : 0;
  }
};

std::int64_t slice_part(Context& context, const Value& v, std::int64_t if_none) {
  if (v.is_none()) return if_none;
  if (v.is_undefined()) context.fail_undefined(v);
  if (!v.is_integral()) context.fail("slice indices are integers or none, not " + v.type_name());
  return v.integer();
}

Bounds slice_bounds(Context& context, std::int64_t size, const Value& start, const Value& stop, const Value& stride) {
  Bounds b;
  b.stride = slice_part(context, stride, 1);
  if (b.stride == 0) context.fail("a slice cannot have the stride 0");
  b.stride = std::max(b.stride, -std::numeric_limits<std::int64_t>::max());
  const std::int64_t lowest = b.stride > 0 ? 0 : -1;
  const std::int64_t highest = b.stride > 0 ? size : size - 1;
  const auto clamp = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, lowest, highest); };
  b.start = start.is_none() ? (b.stride > 0 ? lowest : highest) : clamp(slice_part(context, start, 0));
  b.stop = stop.is_none() ? (b.stride > 0 ? highest : lowest) : clamp(slice_part(context, stop, 0));
  return b;
}

Value slice_text(Context& context, const Text& text, const Bounds& b) {
  if (b.count() == 0) return context.make_text("", text.is_markup);
  context.step(1 + text.bytes.size() / kBytesPerStep);
  const auto first = static_cast<std::size_t>(b.start);
  if (b.stride == 1) {
    return context.make_text(std::string(code_point_range(text, first, static_cast<std::size_t>(b.stop))),
                             text.is_markup);
  }
  context.charge_bytes(text.code_points * sizeof(char32_t));
  std::u32string characters;
  for (std::size_t at = 0; at < text.bytes.size();) characters += decode_next(text.bytes, at);
  std::string out;
  std::int64_t at = b.start;
  for (std::size_t left = b.count(); left > 0; --left, at += left > 0 ? b.stride : 0) {
    append_utf8(out, characters[static_cast<std::size_t>(at)]);
  }
  return context.make_text(std::move(out), text.is_markup);
}

std::int64_t range_value(Context& context, std::int64_t start, std::int64_t index, std::int64_t stride) {
  std::int64_t product = 0;
  std::int64_t sum = 0;
  if (__builtin_mul_overflow(index, stride, &product) || __builtin_add_overflow(start, product, &sum)) {
    context.fail("a bound of the range does not fit in 64 bits");
  }
  return sum;
}

Value slice_sequence(Context& context, const Sequence& s, const Bounds& b) {
  std::vector<Value> items;
  std::int64_t at = b.start;
  for (std::size_t left = b.count(); left > 0; --left, at += left > 0 ? b.stride : 0) {
    items.push_back(s.items[static_cast<std::size_t>(at)]);
  }
  if (s.kind != SequenceKind::range) return context.make_sequence(s.kind, std::move(items));
  return context.make_range(range_value(context, s.start, b.start, s.stride),
                            range_value(context, s.start, b.stop, s.stride),
                            range_value(context, 0, b.stride, s.stride), std::move(items));
}

}  // namespace

std::optional<Value> find_attribute(Context& context, const Value& object, std::string_view name) {
  if (object.is_undefined()) context.fail_undefined(object);
  if (object.is_object()) return object.object().attribute(context, name);
  return bind_method(context, object, name);
}

Value get_attribute(Context& context, const Value& object, std::string_view name) {
  if (auto found = find_attribute(context, object, name)) return *std::move(found);
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(context, name)) return *value;
  }
  return Value::undefined("a value of type " + object.type_name() + " has no attribute '" + std::string(name) + "'");
}

Value get_item(Context& context, const Value& object, const Value& key) {
  if (object.is_undefined()) context.fail_undefined(object);
  if (auto found = find_element(context, object, key)) return *std::move(found);
  if (key.is_text()) {
    if (auto found = find_attribute(context, object, key.bytes())) return *std::move(found);
  }
  return undefined_element(context, object, key);
}

Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop, const Value& stride) {
  if (object.is_undefined()) context.fail_undefined(object);
  const bool sliceable = object.is_text() || object.is_kind(SequenceKind::list) ||
                         object.is_kind(SequenceKind::tuple) || object.is_kind(SequenceKind::range);
  if (!sliceable) context.fail("a value of type " + object.type_name() + " cannot be sliced");
  const auto size = static_cast<std::int64_t>(*length_of(object));
  const Bounds bounds = slice_bounds(context, size, start, stop, stride);
  return object.is_text() ? slice_text(context, object.text(), bounds)
                          : slice_sequence(context, object.sequence(), bounds);
}

}  // namespace sluice::text::jinja
