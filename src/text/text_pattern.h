// What a Split or Replace looks for: a fixed string or a regular expression; and the ways of cutting a text at matches.
//
// Used by the normaliser, the pre-tokeniser and the decoder. Immutable and thread-safe; each search has its own
// scratch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/function_ref.h"
#include "core/json.h"
#include "text/regex.h"

namespace sluice::text {

// Receives the parts of a text in order; together they are the whole text. A match may be empty.
using PartSink = FunctionRef<void(TextSpan part, bool is_match)>;

class TextPattern {
 public:
  // From {"String": "..."} or {"Regex": "..."}.
  TextPattern(const Json& pattern, const std::string& where);
  explicit TextPattern(std::string literal) : literal_(std::move(literal)) {}

  void parts(std::string_view text, RegexScratch& scratch, PartSink sink) const;

  // The text with every match replaced. Throws Error(bad_input) when that makes it more than kMostGrowth times longer:
  // a chain of such steps could fill the memory from a few bytes.
  static constexpr std::size_t kMostGrowth = 64;
  static constexpr std::size_t kGrowthAlwaysBytes = 1 << 16;
  std::string replace(std::string_view text, std::string_view replacement, RegexScratch& scratch) const;

 private:
  std::string literal_;  // not empty, unless regex_ is set
  std::optional<Regex> regex_;
};

enum class SplitBehavior : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// From the name in the file; throws Error(bad_input) for another.
SplitBehavior split_behavior(const Json& name, const std::string& where);

// Turns parts into pieces. Feed it all parts of one text, then call finish(). Empty pieces are left out.
class Splitter {
 public:
  using PieceSink = FunctionRef<void(TextSpan piece)>;
  Splitter(SplitBehavior behavior, bool invert, PieceSink sink) : behavior_(behavior), invert_(invert), sink_(sink) {}

  void part(TextSpan span, bool is_match);
  void finish() { emit(); }

 private:
  void emit();
  bool joins(bool is_match) const;

  SplitBehavior behavior_;
  bool invert_;
  PieceSink sink_;
  TextSpan open_;  // a piece that may still grow
  bool has_open_ = false;
  bool previous_match_ = false;
  bool open_is_lone_match_ = false;
};

}  // namespace sluice::text
