#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "core/error.h"
#include "text/regex_syntax.h"

namespace sluice::text {
namespace {

// A search of a sane pattern takes a few steps for each character of the text; these limits end the others.
constexpr std::uint64_t kMatchStepsAlways = 100'000;
constexpr std::uint64_t kMatchStepsPerByte = 64;
constexpr std::uint32_t kHeapLimitKib = 512 << 10;
constexpr std::size_t kJitStackFirstBytes = 64 << 10;
constexpr std::size_t kJitStackMaxBytes = 64 << 20;  // address space; pages are touched only when a search needs them
constexpr std::size_t kMaxPatternBytes = 16 << 10;

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view s) {
  // PCRE2 refuses a null subject even when it is empty.
  return reinterpret_cast<PCRE2_SPTR>(s.data() == nullptr ? "" : s.data());
}

struct CompileContext {
  CompileContext() : context(pcre2_compile_context_create(nullptr)) {
    if (context == nullptr) throw std::bad_alloc();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);  // what `.`, `^` and `$` of Oniguruma go by
  }
  ~CompileContext() { pcre2_compile_context_free(context); }
  CompileContext(const CompileContext&) = delete;
  CompileContext& operator=(const CompileContext&) = delete;
  pcre2_compile_context* context;
};

pcre2_code* compile(std::string_view pattern, int& error, PCRE2_SIZE& offset) {
  const CompileContext c;
  constexpr std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  return pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, c.context);
}

bool script_name(std::string_view name) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = compile("\\p{sc:" + std::string(name) + "}", error, offset);
  pcre2_code_free(code);
  return code != nullptr;
}

}  // namespace

struct RegexScratch::State {
  State() : data(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~State() {
    if (stack != nullptr) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void limit_steps(std::size_t subject_bytes) {
    const std::uint64_t steps = kMatchStepsAlways + kMatchStepsPerByte * subject_bytes;
    pcre2_set_match_limit(context, static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
  }

  // The default stack of compiled code is small. Returns false when it has already been replaced.
  bool grow_stack() {
    if (stack != nullptr) return false;
    stack = pcre2_jit_stack_create(kJitStackFirstBytes, kJitStackMaxBytes, nullptr);
    if (stack == nullptr) return false;
    pcre2_jit_stack_assign(context, nullptr, stack);
    return true;
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack = nullptr;
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  bool jit = false;
  std::string where;
};

Regex::Regex(std::string_view pattern, const std::string& where, bool use_jit) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorCode::bad_input, where + ": pattern of " + std::to_string(pattern.size()) + " bytes",
         "at most " + std::to_string(kMaxPatternBytes));
  }
  const std::string translated =
      translate_oniguruma(pattern, where, [](std::string_view name) { return script_name(name); });
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_ = std::make_unique<Code>(compile(translated, error, offset));
  if (code_->code == nullptr) {
    fail(ErrorCode::bad_input, where + ": pattern \"" + std::string(pattern) + "\": " + pcre2_message(error),
         "a regular expression");
  }
  code_->jit = use_jit && pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
  code_->where = where;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::jit() const { return code_->jit; }

bool Regex::search(RegexScratch& scratch, std::string_view subject, std::size_t from, TextSpan& match) const {
  RegexScratch::State& s = *scratch.state_;
  s.limit_steps(subject.size());
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    do {
      rc = pcre2_jit_match(code_->code, units(subject), subject.size(), from, 0, s.data, s.context);
    } while (rc == PCRE2_ERROR_JIT_STACKLIMIT && s.grow_stack());
  }
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // no compiled code, or its stack is exhausted: the interpreter uses the heap
    rc = pcre2_match(code_->code, units(subject), subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.data,
                     s.context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    fail(ErrorCode::bad_input,
         code_->where + ": search of a text of " + std::to_string(subject.size()) +
             " bytes stopped: " + pcre2_message(rc),
         "a pattern that needs a bounded number of steps per character");
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
  match = {ends[0], ends[1] < ends[0] ? ends[0] : ends[1]};
  return true;
}

}  // namespace sluice::text
