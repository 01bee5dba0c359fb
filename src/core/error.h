// The one exception type of the library. The library never prints and never aborts.
//
// A message has up to three parts: what failed; what was expected; what to do about it.
// The code of an error is also the exit code of the command line.
#pragma once

#include <stdexcept>
#include <string>

namespace sluice {

enum class ErrorCode : int {
  check_failed = 1,  // a verification or an accuracy threshold was missed
  usage = 2,         // a flag or an argument is wrong
  bad_input = 3,     // a file or a tensor is damaged, missing or inconsistent
  unsupported = 4,   // a valid combination that nothing here can run
  resources = 5,     // out of memory, disk or handles
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

// Throws Error with the message "what; expected: ...; hint". Empty parts are left out.
[[noreturn]] void fail(ErrorCode code, const std::string& what, const std::string& expected = "",
                       const std::string& hint = "");

}  // namespace sluice
