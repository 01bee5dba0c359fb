#include <cmath>
#include <limits>

#include "text/jinja_context.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace sluice::text::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void unsupported(Context& context, BinaryOp op, const Value& a, const Value& b) {
  context.fail(std::string("operator ") + kSigns[static_cast<int>(op)] + " does not take a value of type " +
               a.type_name() + " and one of type " + b.type_name());
}

[[noreturn]] void overflow(Context& context, BinaryOp op) {
  context.fail(std::string("the result of operator ") + kSigns[static_cast<int>(op)] + " does not fit in 64 bits");
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

Value integer_power(Context& context, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) context.fail("zero cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow(context, BinaryOp::power);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow(context, BinaryOp::power);
  }
  return Value(result);
}

Value integer_division(Context& context, BinaryOp op, std::int64_t a, std::int64_t b) {
  if (b == 0) context.fail("division by zero");
  if (op == BinaryOp::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) {
    if (op == BinaryOp::modulo) return Value(std::int64_t{0});
    overflow(context, op);
  }
  const std::int64_t quotient = floor_quotient(a, b);
  return Value(op == BinaryOp::modulo ? a - quotient * b : quotient);
}

Value integer_op(Context& context, BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool too_large = false;
  switch (op) {
    case BinaryOp::add:
      too_large = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::subtract:
      too_large = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::multiply:
      too_large = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::power:
      return integer_power(context, a, b);
    default:
      return integer_division(context, op, a, b);
  }
  if (too_large) overflow(context, op);
  return Value(result);
}

// Python's float modulo has the sign of the divisor; the quotient is exact where fmod is.
Value real_modulo(BinaryOp op, double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1.0;
  } else if (rest == 0.0) {
    rest = std::copysign(0.0, b);
  }
  if (op == BinaryOp::modulo) return Value(rest);
  if (quotient == 0.0) return Value(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1.0 : floored);
}

Value real_power(Context& context, double a, double b) {
  if (a == 0.0 && b < 0) context.fail("zero cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    context.fail("a negative number to a fractional power is complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    context.fail("the result of operator ** is too large");
  return Value(result);
}

Value real_op(Context& context, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add:
      return Value(a + b);
    case BinaryOp::subtract:
      return Value(a - b);
    case BinaryOp::multiply:
      return Value(a * b);
    case BinaryOp::power:
      return real_power(context, a, b);
    default:
      if (b == 0.0) context.fail("division by zero");
      return op == BinaryOp::divide ? Value(a / b) : real_modulo(op, a, b);
  }
}

Value concatenate_texts(Context& context, const Value& a, const Value& b) {
  const bool is_markup = a.text().is_markup || b.text().is_markup;
  context.charge_bytes(1);
  if (!is_markup || a.text().is_markup == b.text().is_markup) {
    return context.make_text(a.bytes() + b.bytes(), is_markup);
  }
  if (a.text().is_markup) return context.make_text(a.bytes() + escape_html(b.bytes()), true);
  return context.make_text(escape_html(a.bytes()) + b.bytes(), true);
}

Value concatenate_sequences(Context& context, const Sequence& a, const Sequence& b) {
  context.step(a.items.size() + b.items.size());
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return context.make_sequence(a.kind, std::move(items));
}

bool is_list_or_tuple(const Value& v) { return v.is_kind(SequenceKind::list) || v.is_kind(SequenceKind::tuple); }

Value repeat(Context& context, const Value& what, std::int64_t times) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  const std::uint64_t size = what.is_text() ? what.bytes().size() : what.sequence().items.size();
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) total = std::numeric_limits<std::uint64_t>::max() / 2;
  if (what.is_text()) {
    context.charge_bytes(total);
    std::string out;
    out.reserve(total);
    for (std::uint64_t i = 0; i < count && size > 0; ++i) out += what.bytes();
    return context.make_text(std::move(out), what.text().is_markup);
  }
  context.step(total);
  std::vector<Value> items;
  for (std::uint64_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), what.sequence().items.begin(), what.sequence().items.end());
  }
  return context.make_sequence(what.sequence().kind, std::move(items));
}

}  // namespace

Value apply(Context& context, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::modulo && a.is_text()) return format_percent(context, a, b);
  if (a.is_undefined()) context.fail_undefined(a);
  if (b.is_undefined()) context.fail_undefined(b);
  if (a.is_integral() && b.is_integral()) return integer_op(context, op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return real_op(context, op, a.real(), b.real());
  if (op == BinaryOp::add && a.is_text() && b.is_text()) return concatenate_texts(context, a, b);
  if (op == BinaryOp::add && is_list_or_tuple(a) && b.is_kind(a.sequence().kind)) {
    return concatenate_sequences(context, a.sequence(), b.sequence());
  }
  if (op == BinaryOp::multiply) {
    if ((a.is_text() || is_list_or_tuple(a)) && b.is_integral()) return repeat(context, a, b.integer());
    if ((b.is_text() || is_list_or_tuple(b)) && a.is_integral()) return repeat(context, b, a.integer());
  }
  unsupported(context, op, a, b);
}

Value negate(Context& context, const Value& v) {
  if (v.is_undefined()) context.fail_undefined(v);
  if (v.is_float()) return Value(-v.real());
  if (!v.is_integral()) context.fail("operator - does not take a value of type " + v.type_name());
  return integer_op(context, BinaryOp::subtract, 0, v.integer());
}

Value unary_plus(Context& context, const Value& v) {
  if (v.is_undefined()) context.fail_undefined(v);
  if (v.is_float()) return v;
  if (!v.is_integral()) context.fail("operator + does not take a value of type " + v.type_name());
  return Value(v.integer());
}

}  // namespace sluice::text::jinja
