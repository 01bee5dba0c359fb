// Regular expressions of tokenizer files, run by PCRE2 with its JIT compiler (or without, where memory may not be made
// executable).
//
// The files are written for Oniguruma. A pattern is translated (regex_syntax.h) so that it splits as it does there, and
// refused by name when it uses something that would not. Regex is immutable: any number of threads may search with it,
// each with its own RegexScratch. Subjects must be valid UTF-8. Character properties are those of PCRE2's Unicode
// version (10.42: 14.0); they agree with Oniguruma's for every character that this version knows.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace sluice::text {

// Buffers of one search at a time; made once per encode call, used for every pattern. Not thread-safe.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

struct TextSpan {
  std::size_t begin = 0;  // bytes
  std::size_t end = 0;
};

class Regex {
 public:
  // Throws Error(bad_input) for a pattern that is wrong and Error(unsupported) for one that cannot be translated; both
  // name `where` (file and field). Without `use_jit` the interpreter runs, as it does where memory may not be
  // executable.
  Regex(std::string_view pattern, const std::string& where, bool use_jit = true);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // First match that begins at or after `from` bytes. Throws Error(bad_input) when the search needs more steps or
  // memory than the limits allow, which only a pathological pattern does.
  bool search(RegexScratch& scratch, std::string_view subject, std::size_t from, TextSpan& match) const;

  bool jit() const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace sluice::text
