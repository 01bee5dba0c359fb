#include "checkpoint/loader.h"

#include <utility>

namespace sluice::ckpt {

LoadMeter::LoadMeter(ProgressSink sink, std::uint64_t total_bytes)
    : sink_(std::move(sink)), total_bytes_(total_bytes), start_(std::chrono::steady_clock::now()) {
  tell();
}

void LoadMeter::add(std::uint64_t bytes) {
  done_bytes_ += bytes;
  tell();
}

LoadReport LoadMeter::report() const {
  return {done_bytes_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()};
}

void LoadMeter::tell() const {
  if (sink_) sink_({"loading weights", "bytes", done_bytes_, total_bytes_});
}

}  // namespace sluice::ckpt
