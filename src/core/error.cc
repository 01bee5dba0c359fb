#include "core/error.h"

namespace sluice {

void fail(ErrorCode code, const std::string& what, const std::string& expected, const std::string& hint) {
  std::string message = what;
  if (!expected.empty()) message += "; expected " + expected;
  if (!hint.empty()) message += "; " + hint;
  throw Error(code, message);
}

}  // namespace sluice
