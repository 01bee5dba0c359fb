#include "cpu/rope.h"

#include <cmath>
#include <string>

#include "core/error.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kPositionsPerTask = 64;
constexpr std::int64_t kTokensPerTask = 4;

const CpuRopeTable& checked(const RopeArgs& args) {
  const auto* table = dynamic_cast<const CpuRopeTable*>(args.table);
  if (table == nullptr) fail(ErrorCode::usage, "rope table of another backend, or none", "one from make_rope");
  if (args.first < 0 || args.first + 2 * table->pairs() > args.head_dim) {
    fail(ErrorCode::usage,
         "rope of " + std::to_string(2 * table->pairs()) + " columns from " + std::to_string(args.first) + " on",
         "within head_dim, " + std::to_string(args.head_dim));
  }
  return *table;
}

}  // namespace

CpuRopeTable::CpuRopeTable(const std::vector<float>& inv_freq, float factor, std::int64_t max_positions,
                           ThreadPool& pool)
    : pairs_(static_cast<std::int64_t>(inv_freq.size())),
      positions_(max_positions),
      memory_(host_buffer(static_cast<std::size_t>(positions_ * 2 * pairs_) * sizeof(float))) {
  pool.parallel_for(positions_, kPositionsPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      float* row = memory_.as<float>() + p * 2 * pairs_;
      for (std::int64_t i = 0; i < pairs_; ++i) {
        const double angle = static_cast<float>(p) * inv_freq[static_cast<std::size_t>(i)];
        row[i] = static_cast<float>(std::cos(angle)) * factor;
        row[pairs_ + i] = static_cast<float>(std::sin(angle)) * factor;
      }
    }
  });
}

void apply_rope(const RopeArgs& args, const OpsKernels& kernels, ThreadPool& pool) {
  const CpuRopeTable& table = checked(args);
  const auto rotate = args.interleaved ? kernels.rope_pairs : kernels.rope_halves;
  pool.parallel_for(args.x.rows, kTokensPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t position = args.positions[t];
      if (position < 0 || position >= table.positions()) {
        fail(ErrorCode::usage, "rope at position " + std::to_string(position),
             "below " + std::to_string(table.positions()), "raise the context length");
      }
      for (std::int32_t h = 0; h < args.heads; ++h) {
        rotate(args.x.row<float>(t) + static_cast<std::int64_t>(h) * args.head_dim + args.first,
               table.cosines(position), table.sines(position), table.pairs());
      }
    }
  });
}

}  // namespace sluice::cpu
