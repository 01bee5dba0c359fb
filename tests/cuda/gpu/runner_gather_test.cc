// Rows of x that the GEMM kernel gathers by token (sm90::TokenRows): the same bits as from the sorted image of them.
#include <algorithm>
#include <string>

#include "gpu/harness.h"
#include "gpu/layer_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::Random;
using sluice::testing::RoutePattern;

constexpr std::uint16_t kNan = 0x7FC0;

cuda::HopperOptions options_of(bool sorted) {
  cuda::HopperOptions options;
  options.token_tile = 128;
  options.decode = -1;
  options.gather = sorted ? -1 : 1;
  return options;
}

// The rows of a batch `shift` elements behind an aligned address, with `spare` columns of NaN between them.
class PlacedRows {
 public:
  PlacedRows(const Batch& batch, std::int64_t spare, std::int64_t shift)
      : stride_(batch.width + spare), shift_(shift), rows_(placed(batch, stride_, shift)), batch_(batch) {}
  ConstTensorView view() const {
    ConstTensorView v =
        dense_view(static_cast<const void*>(rows_.data() + shift_), DType::bf16, batch_.tokens, batch_.width);
    v.row_stride = stride_;
    return v;
  }

 private:
  static std::vector<Bf16> placed(const Batch& batch, std::int64_t stride, std::int64_t shift) {
    std::vector<Bf16> rows(static_cast<std::size_t>(batch.tokens * stride + shift), Bf16{kNan});
    const auto* from = reinterpret_cast<const Bf16*>(batch.hidden.data());
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      std::copy_n(from + t * batch.width, batch.width, rows.begin() + shift + t * stride);
    }
    return rows;
  }
  std::int64_t stride_, shift_;
  DeviceArray<Bf16> rows_;
  const Batch& batch_;
};

std::vector<float> run_placed(const LayerOnGpu& layer, const DeviceBatch& batch, const ConstTensorView& hidden,
                              std::int32_t valid) {
  const DeviceArray<std::int32_t> valid_tokens(std::vector<std::int32_t>{valid});
  const DeviceArray<std::byte> memory(
      static_cast<std::int64_t>(layer.runner->workspace_bytes(layer.problem, batch.tokens)));
  const DeviceArray<Bf16> out(batch.tokens * batch.width);
  Workspace workspace(memory.data(), memory.bytes());
  RunArgs args = layer.run_args(batch, workspace);
  args.hidden = hidden;
  if (valid >= 0) args.valid_tokens = valid_tokens.data();
  args.sum = dense_view(out.data(), DType::bf16, batch.tokens, batch.width);
  layer.runner->run(*layer.prepared, args);
  cuda::check(cudaDeviceSynchronize(), "a run");
  if (!out.intact() || !memory.intact()) fail(ErrorCode::check_failed, "wrote outside");
  std::vector<float> values;
  for (const Bf16 v : out.download()) values.push_back(to_float(v));
  return values;
}

// Both ways for one layer, at places of x that can be read 16 bytes at a time and at others.
void compare_ways(Check& check, const LayerCase& c, std::int64_t tokens, RoutePattern pattern, std::int32_t valid) {
  const LayerOnGpu sorted(c, options_of(true)), gathered(c, options_of(false));
  Batch host = batch_of(c, tokens, pattern, static_cast<std::uint64_t>(tokens));
  Random random(5);
  if (valid >= 0) skip_some(random, host, c.experts);
  const DeviceBatch batch(host);
  const std::vector<float> expected = run_placed(sorted, batch, batch.view(), valid);
  if (c.recipe == Recipe::bf16) sorted.compare(check, batch, expected, "sorted", 8, valid);
  struct Place {
    std::int64_t spare, shift;
  };
  for (const Place at : {Place{0, 0}, Place{8, 8}, Place{3, 0}, Place{0, 1}}) {
    const PlacedRows rows(host, at.spare, at.shift);
    check.expect(same_bits(run_placed(gathered, batch, rows.view(), valid), expected),
                 "T " + std::to_string(tokens) + ", " + std::to_string(at.spare) + " spare columns, shifted by " +
                     std::to_string(at.shift) + ": " + c.text());
  }
}

std::vector<LayerCase> layers() {
  std::vector<LayerCase> list;
  for (const Recipe recipe : kRecipes) {
    for (const bool fixed : {false, true}) {
      if (fixed && recipe != Recipe::fp8_tensor) continue;
      LayerCase c = model_like(recipe);
      c.hidden = fixed ? 2048 : 1040;  // the last K block is full, or an eighth of it
      c.experts = 6;
      c.top_k = 3;
      c.format.static_input = fixed;
      list.push_back(c);
      c.top_k = 1;  // in bf16 straight to the output
      list.push_back(c);
      c.weight_on_input = true;
      list.push_back(c);
    }
  }
  return list;
}

void both_ways(Check& check) {
  for (const LayerCase& c : layers()) {
    compare_ways(check, c, 40, RoutePattern::uniform, -1);
    compare_ways(check, c, 301, RoutePattern::zipf, 290);
    compare_ways(check, c, 1100, RoutePattern::uniform, 1000);
  }
}

}  // namespace

std::vector<Test> runner_gather_tests() { return {{"runner: gathered rows", both_ways}}; }

}  // namespace sluice::gpu_tests
