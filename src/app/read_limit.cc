#include "app/read_limit.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace sluice::app {
namespace {

constexpr std::int64_t kGrainBytes = 256 * 1024;
constexpr double kSeconds = 0.05;
constexpr int kPasses = 5;  // at least

// Four independent sums, so that loads and not additions are the limit.
std::uint64_t sum(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  for (std::int64_t i = 0; i + 4 <= count; i += 4) {
    a += words[i];
    b += words[i + 1];
    c += words[i + 2];
    d += words[i + 3];
  }
  return a + b + c + d;
}

}  // namespace

double measure_read_gbps(ThreadPool& pool, std::int64_t bytes) {
  const std::int64_t size = std::max(bytes / kGrainBytes, std::int64_t{1}) * kGrainBytes;
  const Buffer buffer = host_buffer(static_cast<std::size_t>(size));
  auto* data = buffer.as<std::byte>();
  const auto over_chunks = [&](auto work) {
    pool.parallel_for(size / kGrainBytes, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) work(reinterpret_cast<std::uint64_t*>(data + i * kGrainBytes));
    });
  };
  over_chunks([](std::uint64_t* words) { std::fill_n(words, kGrainBytes / 8, std::uint64_t{1}); });
  std::atomic<std::uint64_t> total{0};  // keeps the sums alive
  double best = 0;
  double elapsed = 0;
  for (int pass = 0; pass < kPasses || elapsed < kSeconds; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    over_chunks([&](const std::uint64_t* words) { total += sum(words, kGrainBytes / 8); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(size) / seconds * 1e-9);
    elapsed += seconds;
  }
  return total == 0 ? 0 : best;
}

double read_limit_gbps(const LoadedModel& model) {
  std::int64_t bytes = model.decoder->weight_bytes().per_token;
  const auto& layers = model.opened.config.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (const LayerSpec* moe = layers[i].moe()) {
      bytes += moe->routing.slots() * model.decoder->expert_bytes(static_cast<std::int64_t>(i));
    }
  }
  return measure_read_gbps(*model.opened.pool, bytes);
}

}  // namespace sluice::app
