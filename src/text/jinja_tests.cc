#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_tables.h"
#include "text/jinja_unicode.h"

// What stands behind `is`.
namespace sluice::text::jinja {
namespace {

bool is_defined(Context&, const Value& v, const Bound&) { return !v.is_undefined(); }
bool is_undefined(Context&, const Value& v, const Bound&) { return v.is_undefined(); }
bool is_none(Context&, const Value& v, const Bound&) { return v.is_none(); }
bool is_boolean(Context&, const Value& v, const Bound&) { return v.is_bool(); }
bool is_true(Context&, const Value& v, const Bound&) { return v.is_bool() && v.truth(); }
bool is_false(Context&, const Value& v, const Bound&) { return v.is_bool() && !v.truth(); }
bool is_integer(Context&, const Value& v, const Bound&) { return v.is_int(); }
bool is_float(Context&, const Value& v, const Bound&) { return v.is_float(); }
bool is_number(Context&, const Value& v, const Bound&) { return v.is_number(); }
bool is_string(Context&, const Value& v, const Bound&) { return v.is_text(); }
bool is_mapping(Context&, const Value& v, const Bound&) { return v.is_dict(); }
bool is_iterable_test(Context&, const Value& v, const Bound&) { return is_iterable(v); }
bool is_escaped(Context&, const Value& v, const Bound&) { return v.is_text() && v.text().is_markup; }

// Has a length and elements; Jinja's undefined has both.
bool is_sequence(Context&, const Value& v, const Bound&) {
  return v.is_text() || v.is_dict() || v.is_undefined() || v.is_kind(SequenceKind::list) ||
         v.is_kind(SequenceKind::tuple) || v.is_kind(SequenceKind::range);
}

bool is_callable(Context&, const Value& v, const Bound&) {
  return v.is_undefined() || (v.is_object() && v.object().is_callable());
}

bool has_remainder(Context& context, const Value& v, const Value& divisor, std::int64_t remainder) {
  return equal(context, apply(context, BinaryOp::modulo, v, divisor), Value(remainder));
}

bool is_odd(Context& c, const Value& v, const Bound&) { return has_remainder(c, v, Value(std::int64_t{2}), 1); }
bool is_even(Context& c, const Value& v, const Bound&) { return has_remainder(c, v, Value(std::int64_t{2}), 0); }
bool is_divisible(Context& c, const Value& v, const Bound& args) { return has_remainder(c, v, args.at(0), 0); }

bool is_equal(Context& c, const Value& v, const Bound& args) { return equal(c, v, args.at(0)); }
bool is_different(Context& c, const Value& v, const Bound& args) { return !equal(c, v, args.at(0)); }
bool is_less(Context& c, const Value& v, const Bound& args) { return less(c, v, args.at(0)); }
bool is_greater(Context& c, const Value& v, const Bound& args) { return less(c, args.at(0), v); }
bool is_at_most(Context& c, const Value& v, const Bound& args) {
  return less(c, v, args.at(0)) || equal(c, v, args.at(0));
}
bool is_at_least(Context& c, const Value& v, const Bound& args) {
  return less(c, args.at(0), v) || equal(c, v, args.at(0));
}
bool is_in(Context& c, const Value& v, const Bound& args) { return contains(c, args.at(0), v); }
bool is_same(Context&, const Value& v, const Bound& args) { return v.same_as(args.at(0)); }

bool is_lower_case(Context& context, const Value& v, const Bound&) {
  const std::string text = to_str(context, v);
  return text == to_lower(text) && text != to_upper(text);
}
bool is_upper_case(Context& context, const Value& v, const Bound&) {
  const std::string text = to_str(context, v);
  return text == to_upper(text) && text != to_lower(text);
}

bool is_filter(Context&, const Value& v, const Bound&) { return v.is_text() && find_filter(v.bytes()) != nullptr; }
bool is_test(Context&, const Value& v, const Bound&) { return v.is_text() && find_test(v.bytes()) != nullptr; }

constexpr Test kTests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable_test},
    {"callable", "", is_callable},
    {"escaped", "", is_escaped},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"eq", "_", is_equal},
    {"equalto", "_", is_equal},
    {"==", "_", is_equal},
    {"ne", "_", is_different},
    {"!=", "_", is_different},
    {"lt", "_", is_less},
    {"lessthan", "_", is_less},
    {"<", "_", is_less},
    {"gt", "_", is_greater},
    {"greaterthan", "_", is_greater},
    {">", "_", is_greater},
    {"le", "_", is_at_most},
    {"<=", "_", is_at_most},
    {"ge", "_", is_at_least},
    {">=", "_", is_at_least},
    {"in", "seq", is_in},
    {"sameas", "other", is_same},
    {"lower", "", is_lower_case},
    {"upper", "", is_upper_case},
    {"filter", "", is_filter},
    {"test", "", is_test},
};

}  // namespace

std::span<const Test> tests() { return kTests; }

}  // namespace sluice::text::jinja
