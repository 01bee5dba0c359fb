#include "text/jinja_split.h"

#include <algorithm>
#include <limits>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

std::uint64_t as_limit(std::int64_t count) {
  return count < 0 ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(count);
}

// Length in bytes of the word at the front (or at the back) of `text`, which has no white space there.
std::size_t word_bytes(std::string_view text, Direction direction) {
  std::size_t at = direction == Direction::forward ? 0 : text.size();
  while (direction == Direction::forward ? at < text.size() : at > 0) {
    std::size_t next = at;
    const char32_t c = direction == Direction::forward ? decode_next(text, next) : decode_previous(text, next);
    if (is_space(c)) break;
    at = next;
  }
  return direction == Direction::forward ? at : text.size() - at;
}

// Replacement of the empty text: `new_text` before every character and at the end.
std::string interleave(std::string_view text, std::string_view new_text, std::uint64_t max_count) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    decode_next(text, at);
    if (max_count > 0) {
      out += new_text;
      --max_count;
    }
    out += text.substr(begin, at - begin);
  }
  if (max_count > 0) out += new_text;
  return out;
}

}  // namespace

std::vector<std::string_view> split_at(Context& context, std::string_view text, std::string_view separator,
                                       std::int64_t max_splits, Direction direction) {
  if (separator.empty()) context.fail("split: the separator is empty");
  std::vector<std::string_view> pieces;
  for (std::uint64_t left = as_limit(max_splits); left > 0; --left) {
    context.step();
    const bool forward = direction == Direction::forward;
    const std::size_t hit = forward ? find_bytes(text, separator) : rfind_bytes(context, text, separator, text.size());
    if (hit == std::string_view::npos) break;
    pieces.push_back(forward ? text.substr(0, hit) : text.substr(hit + separator.size()));
    text = forward ? text.substr(hit + separator.size()) : text.substr(0, hit);
  }
  pieces.push_back(text);
  if (direction == Direction::backward) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_at_space(Context& context, std::string_view text, std::int64_t max_splits,
                                             Direction direction) {
  std::vector<std::string_view> pieces;
  const Side outer = direction == Direction::forward ? Side::left : Side::right;
  text = strip(text, outer);
  for (std::uint64_t left = as_limit(max_splits); left > 0 && !text.empty(); --left) {
    context.step();
    const std::size_t bytes = word_bytes(text, direction);
    if (direction == Direction::forward) {
      pieces.push_back(text.substr(0, bytes));
      text.remove_prefix(bytes);
    } else {
      pieces.push_back(text.substr(text.size() - bytes));
      text.remove_suffix(bytes);
    }
    text = strip(text, outer);
  }
  if (!text.empty()) pieces.push_back(text);
  if (direction == Direction::backward) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_lines(Context& context, std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = decode_next(text, at);
    if (!is_line_break(c)) continue;
    context.step();
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_all(Context& context, std::string_view text, std::string_view old_text, std::string_view new_text,
                        std::int64_t max_count) {
  const std::uint64_t limit = as_limit(max_count);
  if (old_text.empty()) {
    context.charge_bytes(new_text.size() * std::min<std::uint64_t>(limit, count_code_points(text) + 1));
    return interleave(text, new_text, limit);
  }
  std::string out;
  std::size_t from = 0;
  for (std::uint64_t count = 0; count < limit; ++count) {
    const std::size_t hit = find_bytes(text, old_text, from);
    if (hit == std::string_view::npos) break;
    context.charge_bytes(new_text.size());
    out += text.substr(from, hit - from);
    out += new_text;
    from = hit + old_text.size();
  }
  out += text.substr(from);
  return out;
}

std::string pad(Context& context, const Text& text, std::int64_t width, std::string_view fill, Align align) {
  const auto length = static_cast<std::int64_t>(text.code_points);
  if (width <= length) return text.bytes;
  const auto missing = static_cast<std::uint64_t>(width - length);
  context.charge_bytes(missing > (std::uint64_t{1} << 40) ? missing : missing * fill.size());
  std::uint64_t left = align == Align::right ? missing : 0;
  // Python puts the odd one to the left when the width is odd.
  if (align == Align::center) left = missing / 2 + (missing & static_cast<std::uint64_t>(width) & 1);
  std::string out;
  for (std::uint64_t i = 0; i < left; ++i) out += fill;
  out += text.bytes;
  for (std::uint64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace sluice::text::jinja
