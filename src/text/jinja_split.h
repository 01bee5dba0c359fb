// Cutting and joining texts as Python's str methods do; shared by methods and filters.
//
// Views returned here point into the text that was given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

enum class Direction { forward, backward };  // split, rsplit

// At most `max_splits` cuts, all when negative. The white space form drops empty pieces.
std::vector<std::string_view> split_at(Context& context, std::string_view text, std::string_view separator,
                                       std::int64_t max_splits, Direction direction);
std::vector<std::string_view> split_at_space(Context& context, std::string_view text, std::int64_t max_splits,
                                             Direction direction);
std::vector<std::string_view> split_lines(Context& context, std::string_view text, bool keep_ends);

// str.replace: at most `max_count` times, all when negative. Charges the result before it is made.
std::string replace_all(Context& context, std::string_view text, std::string_view old_text, std::string_view new_text,
                        std::int64_t max_count);
// A line of `width` characters filled up with `fill`, or the text when it is longer.
enum class Align { left, right, center };
std::string pad(Context& context, const Text& text, std::int64_t width, std::string_view fill, Align align);

}  // namespace sluice::text::jinja
