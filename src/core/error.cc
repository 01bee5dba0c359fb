#include "core/error.h"

namespace sluice {

std::string error_text(const std::string& what, const std::string& expected, const std::string& hint) {
  std::string message = what;
  if (!expected.empty()) message += "; expected " + expected;
  if (!hint.empty()) message += "; " + hint;
  return message;
}

void fail(ErrorCode code, const std::string& what, const std::string& expected, const std::string& hint) {
  throw Error(code, error_text(what, expected, hint));
}

}  // namespace sluice
