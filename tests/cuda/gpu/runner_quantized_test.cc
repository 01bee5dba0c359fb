// Input that is quantised already (RunArgs::quantized): the same bits as from the rows that the runner quantises
// itself.
#include <string>

#include "gpu/harness.h"
#include "gpu/layer_case.h"
#include "moe/input_scales.h"
#include "numerics/block_fp8.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::random_batch;
using sluice::testing::RoutePattern;

constexpr std::uint8_t kSpareCode = 0x7F;  // a NaN between the rows

// Rows as a dispatcher would send them; `spare` columns between them.
struct HostRows {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::int64_t stride = 0, scale_rows = 0, scale_cols = 0;
};

HostRows quantise(const LayerCase& c, const Batch& batch, float static_scale, std::int64_t spare) {
  HostRows q;
  q.stride = c.hidden + spare;
  q.scale_cols = c.recipe == Recipe::fp8_block ? (c.hidden + 127) / 128 : 1;
  q.scale_rows = static_scale != 0.0f ? 1 : batch.tokens;
  q.codes.assign(static_cast<std::size_t>(batch.tokens * q.stride), kSpareCode);
  q.scales.assign(static_cast<std::size_t>(q.scale_rows * q.scale_cols), static_scale);
  const auto* hidden = reinterpret_cast<const Bf16*>(batch.hidden.data());
  for (std::int64_t t = 0; t < batch.tokens; ++t) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < c.hidden; ++i) values.push_back(to_float(hidden[t * c.hidden + i]));
    const auto codes = std::span(q.codes).subspan(static_cast<std::size_t>(t * q.stride), values.size());
    if (c.recipe == Recipe::fp8_block) {
      const auto cols = static_cast<std::size_t>(q.scale_cols);
      quantize_fp8_group_row(values, codes, std::span(q.scales).subspan(static_cast<std::size_t>(t) * cols, cols));
      continue;
    }
    const float scale = static_scale != 0.0f ? static_scale : fp8_scale(finite_amax(values));
    if (static_scale == 0.0f) q.scales[static_cast<std::size_t>(t)] = scale;
    quantize_fp8_row_with_scale(values, scale, codes);
  }
  return q;
}

std::vector<float> run_quantised(const LayerOnGpu& layer, const DeviceBatch& batch, const HostRows& q) {
  const DeviceArray<std::uint8_t> codes(q.codes);
  const DeviceArray<float> scales(q.scales), out(batch.tokens * batch.width);
  const DeviceArray<std::byte> memory(
      static_cast<std::int64_t>(layer.runner->workspace_bytes(layer.problem, batch.tokens)));
  Workspace workspace(memory.data(), memory.bytes());
  RunArgs args = layer.run_args(batch, workspace);
  args.hidden = {};
  args.quantized.codes = dense_view(static_cast<const void*>(codes.data()), DType::e4m3, batch.tokens, batch.width);
  args.quantized.codes.row_stride = q.stride;
  args.quantized.sum_scales =
      dense_view(static_cast<const void*>(scales.data()), DType::f32, q.scale_rows, q.scale_cols);
  args.sum = dense_view(out.data(), DType::f32, batch.tokens, batch.width);
  layer.runner->run(*layer.prepared, args);
  cuda::check(cudaDeviceSynchronize(), "a run");
  if (!out.intact() || !memory.intact()) fail(ErrorCode::check_failed, "wrote outside");
  return out.download();
}

void quantised_input(Check& check) {
  for (const Recipe recipe : {Recipe::fp8_block, Recipe::fp8_tensor}) {
    for (const bool fixed : {false, true}) {
      if (recipe == Recipe::fp8_block && fixed) continue;
      LayerCase c;
      c.recipe = recipe;
      c.hidden = 1040;
      c.intermediate = 512;
      c.experts = 12;
      c.top_k = 3;
      c.format.static_input = fixed;
      // The launch for a few tokens does not take codes. In token tiles of 128 they are read by token where they lie,
      // too.
      cuda::HopperOptions options = ways_of_few_tokens().front(), gathering = options;
      gathering.gather = 1;
      const LayerOnGpu layer(c, options), gathers(c, gathering);
      const float scale = fixed ? layer_input_scales(recipe, layer.weights.input_scales).gemm1 : 0.0f;
      for (const std::int64_t tokens : {1, 5, 90, 1500}) {
        const Batch host = random_batch(layer.problem.layer, tokens, DType::bf16, RoutePattern::zipf, 11);
        const DeviceBatch batch(host);
        const auto expected = layer.run(batch);
        for (const std::int64_t spare : {0, 16, 3}) {
          for (const LayerOnGpu* way : {&layer, &gathers}) {
            const auto got = run_quantised(*way, batch, quantise(c, host, scale, spare));
            check.expect(same_bits(got, expected), "T " + std::to_string(tokens) + ", " + std::to_string(spare) +
                                                       " spare columns" + (way == &gathers ? ", gathered: " : ": ") +
                                                       c.text());
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<Test> runner_quantized_tests() { return {{"runner: quantised input", quantised_input}}; }

}  // namespace sluice::gpu_tests
