// What several sequence filters share: attribute paths, sort keys and stable sorting.
#pragma once

#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// The value at "a.b.0" below `item`; an integer is one index. When `otherwise` is set it replaces undefined at each
// step.
Value attribute_path(Context& context, const Value& item, const Value& path, const Value* otherwise = nullptr);
// Texts in lower case, everything else as it is.
Value fold_case(Context& context, const Value& value);
// The order that sorts `keys`, equal keys staying in theirs. Fails for keys without an order.
std::vector<std::size_t> sorted_order(Context& context, const std::vector<Value>& keys, bool reverse);

}  // namespace sluice::text::jinja
