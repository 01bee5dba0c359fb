// Progress and speed of loading a model: bytes of the files against time.
//
// Used by whoever walks over the layers of a WeightSource. One thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/log.h"

namespace sluice::ckpt {

struct LoadReport {
  std::uint64_t bytes = 0;  // of the files, read and prepared
  double seconds = 0;
  double gb_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0; }
};

class LoadMeter {
 public:
  // Tells `sink` (which may be empty) the start at once. `total_bytes` is what add() will sum up to.
  LoadMeter(ProgressSink sink, std::uint64_t total_bytes);
  void add(std::uint64_t bytes);
  LoadReport report() const;

 private:
  void tell() const;

  ProgressSink sink_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sluice::ckpt
