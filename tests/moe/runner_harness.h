// Runs a runner on a batch of random_layer.h and returns the output as plain floats. For tests of any CPU runner.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/workspace.h"
#include "moe/random_layer.h"
#include "moe/runner.h"
#include "numerics/bf16.h"

namespace sluice::testing {

enum class OutputKind : std::uint8_t { sum_f32, sum_bf16, routes_f32 };

// What a run may be given besides the batch.
struct RunOptions {
  OutputKind output = OutputKind::sum_f32;
  SlotRange slots{0, -1};          // count -1 = all experts of the layer
  std::int32_t valid_tokens = -1;  // -1 = not given
  StageSink* stages = nullptr;
};

// [rows, width] of the output, row by row. Output and workspace start as NaN, so that a value that was not written, or
// scratch that was read before it was written, shows.
inline std::vector<float> run_batch(const Runner& runner, const PreparedExperts& prepared, const Problem& problem,
                                    const Batch& batch, const RunOptions& options = {}) {
  const bool routes = options.output == OutputKind::routes_f32;
  const std::int64_t rows = batch.tokens * (routes ? batch.top_k : 1);
  const auto count = static_cast<std::size_t>(rows * batch.width);
  std::vector<float> f32(count, std::numeric_limits<float>::quiet_NaN());
  std::vector<Bf16> bf16(count, Bf16{0x7FC0});
  const Buffer scratch = host_buffer(runner.workspace_bytes(problem, batch.tokens) + Workspace::kAlignBytes);
  std::fill_n(scratch.as<std::uint32_t>(), scratch.bytes() / 4, 0x7FC00000u);
  Workspace workspace(scratch.data(), scratch.bytes());

  RunArgs args;
  args.hidden = batch.view();
  args.ids = batch.ids.data();
  args.weights = batch.weights.data();
  args.top_k = batch.top_k;
  args.valid_tokens = options.valid_tokens >= 0 ? &options.valid_tokens : nullptr;
  args.slots = options.slots.count >= 0 ? options.slots : SlotRange{0, problem.layer.routing.total_experts()};
  const bool is_bf16 = options.output == OutputKind::sum_bf16;
  void* out = is_bf16 ? static_cast<void*>(bf16.data()) : f32.data();
  (routes ? args.routes : args.sum) = dense_view(out, is_bf16 ? DType::bf16 : DType::f32, rows, batch.width);
  args.workspace = &workspace;
  args.stages = options.stages;
  runner.run(prepared, args);
  for (std::size_t i = 0; is_bf16 && i < count; ++i) f32[i] = to_float(bf16[i]);
  return f32;
}

// Row t of the batch alone.
inline Batch single_row(const Batch& batch, std::int64_t t) {
  Batch row{1, batch.width, batch.top_k, batch.dtype, {}, {}, {}};
  const std::int64_t bytes = dtype_bytes(batch.dtype, batch.width);
  row.hidden.assign(batch.hidden.begin() + t * bytes, batch.hidden.begin() + (t + 1) * bytes);
  row.ids.assign(batch.ids.begin() + t * batch.top_k, batch.ids.begin() + (t + 1) * batch.top_k);
  row.weights.assign(batch.weights.begin() + t * batch.top_k, batch.weights.begin() + (t + 1) * batch.top_k);
  return row;
}

inline Batch concatenate(const std::vector<Batch>& parts) {
  Batch all = parts.at(0);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Batch& p = parts[i];
    all.tokens += p.tokens;
    all.hidden.insert(all.hidden.end(), p.hidden.begin(), p.hidden.end());
    all.ids.insert(all.ids.end(), p.ids.begin(), p.ids.end());
    all.weights.insert(all.weights.end(), p.weights.begin(), p.weights.end());
  }
  return all;
}

}  // namespace sluice::testing
