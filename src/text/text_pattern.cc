#include "text/text_pattern.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/fields.h"
#include "text/unicode.h"

namespace sluice::text {

TextPattern::TextPattern(const Json& pattern, const std::string& where) {
  const Json* literal = pattern.find("String");
  const Json* regex = pattern.find("Regex");
  if ((literal == nullptr) == (regex == nullptr)) {
    fail(ErrorCode::bad_input, where + ": no pattern", "an object with either \"String\" or \"Regex\"");
  }
  if (literal != nullptr) literal_ = literal->as_string(place(where, "String"));
  if (literal_.empty()) regex_.emplace(regex == nullptr ? "" : regex->as_string(place(where, "Regex")), where);
}

void TextPattern::parts(std::string_view text, RegexScratch& scratch, PartSink sink) const {
  std::size_t done = 0;
  const auto match = [&](TextSpan m) {
    if (m.begin != done) sink({done, m.begin}, false);
    sink(m, true);
    done = m.end;
  };
  if (!regex_) {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, done)) {
      match({at, at + literal_.size()});
    }
  } else {
    bool any = false;
    TextSpan m;
    for (std::size_t from = 0; !text.empty() && from <= text.size() && regex_->search(scratch, text, from, m);) {
      if (m.begin == m.end && any && m.end == done) {  // an empty match right behind a match does not count
        from += from < text.size() ? static_cast<std::size_t>(decode_utf8(text.substr(from)).bytes) : 1;
        continue;
      }
      match(m);
      any = true;
      from = m.end;
    }
  }
  if (done != text.size()) sink({done, text.size()}, false);
}

std::string TextPattern::replace(std::string_view text, std::string_view replacement, RegexScratch& scratch) const {
  std::string out;
  out.reserve(text.size());
  const std::size_t most_bytes = std::max(kMostGrowth * text.size(), kGrowthAlwaysBytes);
  parts(text, scratch, [&](TextSpan part, bool is_match) {
    out.append(is_match ? replacement : text.substr(part.begin, part.end - part.begin));
    if (out.size() <= most_bytes) return;
    fail(ErrorCode::bad_input,
         "tokenizer.json: Replace makes " + std::to_string(text.size()) + " bytes of text more than " +
             std::to_string(most_bytes),
         "a replacement of a length similar to what it replaces");
  });
  return out;
}

SplitBehavior split_behavior(const Json& name, const std::string& where) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name.as_string(where) == known) return behavior;
  }
  fail(ErrorCode::bad_input, where + ": \"" + name.as_string(where) + "\"",
       "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Whether a part is added to the piece that is open.
bool Splitter::joins(bool is_match) const {
  if (!has_open_) return false;
  switch (behavior_) {
    case SplitBehavior::contiguous:
      return is_match == previous_match_;
    case SplitBehavior::merged_with_previous:
      return is_match && !previous_match_;
    case SplitBehavior::merged_with_next:
      return !is_match && open_is_lone_match_;
    default:
      return false;
  }
}

void Splitter::part(TextSpan span, bool is_match) {
  is_match = is_match != invert_;
  if (behavior_ == SplitBehavior::removed && is_match) return;
  if (joins(is_match)) {
    open_.end = span.end;
    open_is_lone_match_ = false;
  } else {
    emit();
    open_ = span;
    has_open_ = true;
    open_is_lone_match_ = is_match;
  }
  previous_match_ = is_match;
}

void Splitter::emit() {
  if (has_open_ && open_.begin < open_.end) sink_(open_);
  has_open_ = false;
}

}  // namespace sluice::text
