#include "text/jinja_compare.h"

#include <cstring>

#include "text/jinja_context.h"
#include "text/jinja_iterate.h"

namespace sluice::text::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 64;

// Compares an int with a double without rounding the int: 2^53 + 1 is not 2^53. Returns -1, 0, 1 or 2 for NaN.
int compare_numbers(const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; };
  if (a.is_integral() && b.is_integral()) return sign(a.integer(), b.integer());
  if (a.is_float() && b.is_float()) return sign(a.real(), b.real());
  return sign(static_cast<long double>(a.is_float() ? a.real() : static_cast<long double>(a.integer())),
              static_cast<long double>(b.is_float() ? b.real() : static_cast<long double>(b.integer())));
}

bool same_sequence_family(const Sequence& a, const Sequence& b) { return a.kind == b.kind; }

bool equal_sequences(Context& context, const Sequence& a, const Sequence& b) {
  if (!same_sequence_family(a, b) || a.items.size() != b.items.size()) return false;
  if (a.kind == SequenceKind::values) return &a == &b;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(context, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Context& context, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(context, key);
    if (other == nullptr || !equal(context, value, *other)) return false;
  }
  return true;
}

bool less_sequences(Context& context, const Sequence& a, const Sequence& b) {
  const std::size_t common = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!equal(context, a.items[i], b.items[i])) return less(context, a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size();
}

bool is_ordered(const Value& v) { return v.is_kind(SequenceKind::list) || v.is_kind(SequenceKind::tuple); }

}  // namespace

bool equal(Context& context, const Value& a, const Value& b) {
  context.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is_text() && b.is_text()) {
    context.step(std::min(a.bytes().size(), b.bytes().size()) / kBytesPerStep);
    return a.bytes() == b.bytes();
  }
  if (a.is_sequence() && b.is_sequence()) return equal_sequences(context, a.sequence(), b.sequence());
  if (a.is_dict() && b.is_dict()) return equal_dicts(context, a.dict(), b.dict());
  if (a.is_object() && b.is_object()) return &a.object() == &b.object();
  return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
}

bool less(Context& context, const Value& a, const Value& b) {
  context.step();
  if (a.is_undefined()) context.fail_undefined(a);
  if (b.is_undefined()) context.fail_undefined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_text() && b.is_text()) {
    context.step(std::min(a.bytes().size(), b.bytes().size()) / kBytesPerStep);
    return a.bytes() < b.bytes();  // the byte order of UTF-8 is the order of the code points
  }
  if (is_ordered(a) && is_ordered(b) && same_sequence_family(a.sequence(), b.sequence())) {
    return less_sequences(context, a.sequence(), b.sequence());
  }
  context.fail("cannot order a value of type " + a.type_name() + " and one of type " + b.type_name());
}

bool contains(Context& context, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_undefined() || !item.is_text()) {
      context.fail("'in <string>' needs a string on its left side, not a value of type " + item.type_name());
    }
    context.step(container.bytes().size() / kBytesPerStep);
    return find_bytes(container.bytes(), item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!is_hashable(context, item)) context.fail("a value of type " + item.type_name() + " cannot be a key");
    return container.dict().find(context, item) != nullptr;
  }
  Iterator items(context, container);
  while (const auto element = items.next()) {
    if (equal(context, *element, item)) return true;
  }
  return false;
}

bool is_hashable(Context& context, const Value& value) {
  context.step();
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  const Sequence& sequence = value.sequence();
  if (sequence.kind == SequenceKind::range) return true;
  if (sequence.kind != SequenceKind::tuple) return false;
  for (const Value& item : sequence.items) {
    if (!is_hashable(context, item)) return false;
  }
  return true;
}

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem, unlike std::string::find, is linear for every needle.
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

std::size_t rfind_bytes(Context& context, std::string_view text, std::string_view needle, std::size_t end) {
  if (needle.size() > end) return std::string_view::npos;
  context.step(1 + end / kBytesPerStep * (1 + std::min<std::size_t>(needle.size(), end) / kBytesPerStep));
  return text.rfind(needle, end - needle.size());
}

}  // namespace sluice::text::jinja
