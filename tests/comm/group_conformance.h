// What every engine of ranks must do, called by each rank of a group: the same checks for `single`, `threads` and
// `mpi`. Expected values come from closed forms and serial sums in the test, never from a group.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"

namespace sluice::test {

struct Check {
  const char* name;
  void (*run)(Group& group);  // throws std::runtime_error that says what was found
};

const std::vector<Check>& conformance_checks();

}  // namespace sluice::test
