#include "app/bench_ceilings.h"

#include <atomic>
#include <chrono>
#include <cstring>

namespace sluice::app {
namespace {

constexpr std::size_t kBufferBytes = 512u << 20;
constexpr std::size_t kChunkBytes = 1u << 20;
constexpr double kPeakSeconds = 0.008;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

CeilingMeter::CeilingMeter(ThreadPool& pool, const cpu::GemmKernels& kernels)
    : pool_(pool), kernels_(kernels), memory_(host_buffer(kBufferBytes)) {
  std::memset(memory_.data(), 1, memory_.bytes());
}

Ceilings CeilingMeter::measure() { return {read_bytes_per_s() * 1e-9, operations_per_s() * 1e-9}; }

// Chunks are handed out dynamically, as the runner does, so that a thread that lost its processor doesn't hold up all.
double CeilingMeter::read_bytes_per_s() {
  std::atomic<std::uint64_t> sum{0};  // keeps the reads alive
  const double begin = now();
  pool_.parallel_for(kBufferBytes / kChunkBytes, 1, [&](std::int64_t first, std::int64_t last, int) {
    const std::byte* from = memory_.as<std::byte>() + static_cast<std::size_t>(first) * kChunkBytes;
    sum += kernels_.read_loop(from, static_cast<std::size_t>(last - first) * kChunkBytes);
  });
  return static_cast<double>(kBufferBytes) / (now() - begin);
}

double CeilingMeter::operations_per_s() {
  constexpr std::int64_t kRounds = 4096;
  std::atomic<std::int64_t> operations{0};
  const double begin = now();
  pool_.parallel([&](int) {
    std::int64_t mine = 0;
    do {
      mine += kernels_.peak_loop(kRounds);
    } while (now() - begin < kPeakSeconds);
    operations += mine;
  });
  return static_cast<double>(operations) / (now() - begin);
}

}  // namespace sluice::app
