// A random layer on the GPU with its oracle: what the tests of the runner are made of. `run` compares every token, or a
// sample of them, with the oracle; outputs and workspace are poisoned and guarded.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/oracle.h"
#include "gpu/device_batch.h"
#include "gpu/facade.h"
#include "gpu/harness.h"
#include "moe/quantized_layer.h"
#include "moe/runner_harness.h"

namespace sluice::gpu_tests {

// Largest relative L2 distance from the oracle that a run may have (issue and architecture section 5).
inline double oracle_bound(Recipe recipe) { return recipe == Recipe::bf16 ? 5e-3 : 1e-2; }

// The same in layers with few columns. In fp8 the distance is that of codes next to a tie that fell to the other side,
// a step of 2^-3 to 2^-4 each: with a share p of them it is about 0.09 sqrt(p), and p varies when codes are few.
inline double small_layer_bound(Recipe recipe) { return recipe == Recipe::bf16 ? 5e-3 : 2e-2; }

inline constexpr Recipe kRecipes[] = {Recipe::bf16, Recipe::fp8_block, Recipe::fp8_tensor};

// Both ways to compute a few tokens: without the kernel for them, and by the runner's own choice.
inline std::vector<cuda::HopperOptions> ways_of_few_tokens() {
  cuda::HopperOptions without;
  without.decode = -1;
  return {without, {}};
}

struct LayerCase {
  Recipe recipe = Recipe::bf16;
  std::int64_t hidden = 256, intermediate = 128;
  std::int32_t experts = 8, top_k = 2;
  ActivationSpec activation;
  bool bias = false;
  bool weight_on_input = false;
  bool row_invariant = false;
  sluice::testing::FormatOptions format;
  sluice::testing::WeightLayout layout = sluice::testing::WeightLayout::dense;
  std::uint64_t seed = 1;

  Problem problem() const {
    Problem p;
    p.recipe = recipe;
    p.device = {DeviceKind::cuda, 0};
    p.layer.hidden = hidden;
    p.layer.intermediate = intermediate;
    p.layer.activation = activation;
    p.layer.has_bias = bias;
    p.layer.weight_on_input = weight_on_input;
    p.layer.routing.experts = experts;
    p.layer.routing.top_k = top_k;
    p.row_invariant = row_invariant;
    return p;
  }
  ExpertWeights weights() const {
    sluice::testing::LayerOptions o;
    o.layer = problem().layer;
    o.layout = layout;
    o.seed = seed;
    return sluice::testing::quantized_weights(o, recipe, format);
  }
  std::string text() const {
    return std::string(recipe_info(recipe).name) + " H " + std::to_string(hidden) + " I " +
           std::to_string(intermediate) + " E " + std::to_string(experts) + " k " + std::to_string(top_k) + " " +
           std::string(activation_name(activation.kind)) + (bias ? " bias" : "") + " seed " + std::to_string(seed);
  }
};

inline LayerCase model_like(Recipe recipe) {
  LayerCase c;
  c.recipe = recipe;
  c.hidden = 1024;
  c.intermediate = 768;
  c.experts = 16;
  c.top_k = 4;
  return c;
}

// The experts [first, first + count) of all.
inline ExpertWeights local_part(const ExpertWeights& all, std::int32_t first, std::int32_t count) {
  ExpertWeights part = all;
  const auto cut = [&](auto& list) {
    if (list.empty()) return;
    list = {list.begin() + first, list.begin() + first + count};
  };
  cut(part.gate);
  cut(part.up);
  cut(part.down);
  cut(part.gate_bias);
  cut(part.up_bias);
  cut(part.down_bias);
  return part;
}

class LayerOnGpu {
 public:
  explicit LayerOnGpu(const LayerCase& c, const cuda::HopperOptions& options = {}, SlotRange slots = {0, -1})
      : spec(c), problem(c.problem()), runner(cuda::make_hopper_runner(nullptr, options)), range(slots) {
    if (range.count < 0) range = {0, c.experts};
    weights = local_part(c.weights(), range.first, range.count);
    prepared = runner->prepare(problem, ExpertWeights(weights));
    oracle = std::make_unique<cuda::Oracle>(problem, weights, 0);
  }

  // [T, H] f32. Throws when a guard was overwritten.
  std::vector<float> run(const DeviceBatch& batch, std::int32_t valid = -1, bool bf16_out = false) const {
    const std::int64_t count = batch.tokens * batch.width;
    const DeviceArray<float> f32(bf16_out ? 0 : count);
    const DeviceArray<Bf16> bf16(bf16_out ? count : 0);
    const DeviceArray<std::int32_t> valid_tokens(std::vector<std::int32_t>{valid});
    const DeviceArray<std::byte> memory(static_cast<std::int64_t>(runner->workspace_bytes(problem, batch.tokens)));
    Workspace workspace(memory.data(), memory.bytes());
    RunArgs args = run_args(batch, workspace);
    if (valid >= 0) args.valid_tokens = valid_tokens.data();
    void* out = bf16_out ? static_cast<void*>(bf16.data()) : f32.data();
    args.sum = dense_view(out, bf16_out ? DType::bf16 : DType::f32, batch.tokens, batch.width);
    runner->run(*prepared, args);
    cuda::check(cudaDeviceSynchronize(), "a run");
    if (!f32.intact() || !bf16.intact() || !memory.intact()) fail(ErrorCode::check_failed, "wrote outside");
    if (!bf16_out) return f32.download();
    std::vector<float> values;
    for (const Bf16 v : bf16.download()) values.push_back(to_float(v));
    return values;
  }

  RunArgs run_args(const DeviceBatch& batch, Workspace& workspace) const {
    RunArgs args;
    args.hidden = batch.view();
    args.ids = batch.ids.data();
    args.weights = batch.weights.data();
    args.top_k = batch.top_k;
    args.slots = range;
    args.workspace = &workspace;
    return args;
  }

  // Compares up to `most` tokens with the oracle, spread over the batch, the first and the last among them.
  void compare(Check& check, const DeviceBatch& batch, const std::vector<float>& got, const std::string& what,
               std::int64_t most = 24, std::int64_t valid = -1) const {
    const std::int64_t tokens = valid >= 0 ? std::min(valid, batch.tokens) : batch.tokens;
    std::vector<std::int64_t> list;
    const std::int64_t n = std::min(most, tokens);
    for (std::int64_t i = 0; i < n; ++i) list.push_back(n == 1 ? 0 : i * (tokens - 1) / (n - 1));
    const bool small = spec.intermediate < 512;
    const double bound = small ? small_layer_bound(spec.recipe) : oracle_bound(spec.recipe);
    const std::vector<float> expected = oracle->rows(batch.oracle_batch(range.first), list).sum;
    std::vector<float> mine;
    for (const std::int64_t t : list) {
      mine.insert(mine.end(), got.begin() + t * batch.width, got.begin() + (t + 1) * batch.width);
    }
    check.at_most(relative_l2(mine, expected), bound, what + ": " + spec.text());
    const bool zeros = std::all_of(got.begin() + tokens * batch.width, got.end(), [](float v) { return v == 0.0f; });
    check.expect(zeros, "padding is not zero: " + what);
    const bool finite = std::all_of(got.begin(), got.end(), [](float v) { return std::isfinite(v); });
    check.expect(finite, "NaN or infinity in the output: " + what + ": " + spec.text());
  }

  LayerCase spec;
  Problem problem;
  std::unique_ptr<Runner> runner;
  SlotRange range;
  ExpertWeights weights;
  std::unique_ptr<PreparedExperts> prepared;
  std::unique_ptr<cuda::Oracle> oracle;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline sluice::testing::Batch batch_of(const LayerCase& c, std::int64_t tokens, sluice::testing::RoutePattern pattern,
                                       std::uint64_t seed) {
  return sluice::testing::random_batch(c.problem().layer, tokens, DType::bf16, pattern, seed);
}

// All experts, or a third of the time some that follow each other.
inline SlotRange random_slots(sluice::testing::Random& random, std::int32_t experts) {
  SlotRange slots{0, experts};
  if (random.below(3) == 0) {
    slots.first = random.below(experts);
    slots.count = 1 + random.below(experts - slots.first);
  }
  return slots;
}

// Every ninth id becomes one that runners skip.
inline void skip_some(sluice::testing::Random& random, sluice::testing::Batch& batch, std::int32_t experts) {
  for (SlotId& id : batch.ids) {
    if (random.below(9) == 0) id = random.below(2) == 0 ? kNoSlot : SlotId{experts + random.below(1000)};
  }
}

// Routes output against the sum of the same batch, which is theirs in slot order; route 3 is skipped.
inline void expect_sum_of_routes(Check& check, const Facade& facade, const LayerCase& c, sluice::testing::Batch batch) {
  const auto prepared = facade.prepare(c.problem(), c.weights());
  batch.ids[3] = kNoSlot;
  sluice::testing::RunOptions options;
  const auto sum = sluice::testing::run_batch(facade, *prepared, c.problem(), batch, options);
  options.output = sluice::testing::OutputKind::routes_f32;
  const auto routes = sluice::testing::run_batch(facade, *prepared, c.problem(), batch, options);
  std::vector<float> expected(sum.size(), 0.0f);
  for (std::int64_t r = 0; r < batch.tokens * c.top_k; ++r) {
    for (std::int64_t h = 0; h < c.hidden; ++h) {
      const float row = routes[static_cast<std::size_t>(r * c.hidden + h)];
      if (r == 3) check.expect(row == 0.0f, "a skipped route is not zero");
      if (r != 3) expected[static_cast<std::size_t>(r / c.top_k * c.hidden + h)] += batch.weights[r] * row;
    }
  }
  check.expect(same_bits(sum, expected), "the sum is not that of the routes in slot order: " + c.text());
}

}  // namespace sluice::gpu_tests
