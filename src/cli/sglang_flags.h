// Flags of SGLang's launch line that are no flags of ours: each is refused by name, or accepted with a line that says
// what becomes of it. One table; parsing, --help and docs/flags.md take it from here through flags.cc.
//
// Called by flags.cc (the table) and session.cc (the verdict). Constant data and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

enum class SglangRule : std::uint8_t {
  any,    // accepted with every value
  only,   // accepted with the values of `accepted`, refused with others
  never,  // refused
};

// The commands that have the flag in this form.
enum class SglangWhere : std::uint8_t {
  model,  // all that open a model
  serve,  // serve alone
};

struct SglangFlag {
  std::string_view names;
  std::string_view value;    // placeholder, "" for a switch
  std::string_view meaning;  // in SGLang
  SglangRule rule = SglangRule::any;
  std::string_view accepted;  // space-separated
  std::string_view outcome;   // what becomes of it, or why it is refused
  SglangWhere where = SglangWhere::model;
};

std::span<const SglangFlag> sglang_flags();        // of all that open a model
std::span<const SglangFlag> sglang_serve_flags();  // of serve alone

// A flag as it was given.
struct SglangUse {
  const SglangFlag* flag = nullptr;
  std::string value;
};

// A line for each flag that was given. Throws Error(unsupported) for the first that is refused, with what would work.
std::vector<std::string> sglang_notes(const std::vector<SglangUse>& uses);

}  // namespace sluice::cli
