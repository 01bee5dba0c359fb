// The CUDA backend as the rest of the program sees it: whether there is one, and a factory.
//
// Called by the wiring and by `doctor`. In a build without CUDA the same functions exist (no_cuda.cc) and say so, so
// that nobody above needs to know. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "moe/backend.h"

namespace sluice::cuda {

struct Status {
  bool usable = false;  // make_backend would work
  std::string found;    // for people: what this build and this machine have
  std::string advice;   // how to get what is missing; empty when nothing is
};

// `driver_file` is where the kernel driver describes itself.
Status status(const std::string& driver_file = "/proc/driver/nvidia/version");

// The backend on one GPU. Throws Error(unsupported) with the text of status() when there is none.
std::unique_ptr<Backend> make_backend(int device_index);

}  // namespace sluice::cuda
