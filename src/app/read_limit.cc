#include "app/read_limit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "cpu/gemm.h"

namespace sluice::app {
namespace {

constexpr std::int64_t kGrainBytes = 256 * 1024;
constexpr double kSeconds = 0.2;
constexpr int kPasses = 5;  // at least

}  // namespace

double measure_read_gbps(ThreadPool& pool, cpu::Isa isa, std::int64_t bytes) {
  const std::int64_t size = std::max(bytes / kGrainBytes, std::int64_t{1}) * kGrainBytes;
  const Buffer buffer = host_buffer(static_cast<std::size_t>(size));
  std::memset(buffer.data(), 1, buffer.bytes());
  const cpu::GemmKernels& kernels = cpu::gemm_kernels(isa);
  std::atomic<std::uint64_t> total{0};  // keeps the reads alive
  double best = 0;
  double elapsed = 0;
  for (int pass = 0; pass < kPasses || elapsed < kSeconds; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(size / kGrainBytes, 1, [&](std::int64_t begin, std::int64_t end, int) {
      const std::byte* from = buffer.as<std::byte>() + begin * kGrainBytes;
      total += kernels.read_loop(from, static_cast<std::size_t>((end - begin) * kGrainBytes));
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(size) / seconds * 1e-9);
    elapsed += seconds;
  }
  return best;
}

double read_limit_gbps(const LoadedModel& model) {
  std::int64_t bytes = model.decoder->weight_bytes().per_token;
  const auto& layers = model.opened.config.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (const LayerSpec* moe = layers[i].moe()) {
      bytes += moe->routing.slots() * model.decoder->expert_bytes(static_cast<std::int64_t>(i));
    }
  }
  return measure_read_gbps(*model.opened.pool, model.opened.isa, bytes);
}

}  // namespace sluice::app
