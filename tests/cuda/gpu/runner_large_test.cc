// Sizes of real models and offsets beyond 2^31, judged by the oracle. Experts are views at random places of one block
// of random codes, so that a layer of a hundred experts is made in a moment.
#include <memory>
#include <string>

#include "gpu/device_batch.h"
#include "gpu/facade.h"
#include "gpu/harness.h"
#include "gpu/layer_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::Random;
using sluice::testing::random_batch;
using sluice::testing::RoutePattern;

struct LargeShape {
  const char* name;
  std::int64_t hidden, intermediate;
  std::int32_t experts, local, top_k;
  bool bias;
};

struct Blocks {
  std::vector<std::uint8_t> codes;
  std::vector<Bf16> values;
  std::vector<float> scales;
};

constexpr std::int64_t kSlack = 1 << 18;

ExpertWeights large_weights(const LargeShape& s, Recipe recipe, std::uint64_t seed) {
  const std::int64_t elements = s.hidden * s.intermediate + kSlack;
  auto blocks = std::make_shared<Blocks>();
  Random random(seed);
  const bool fp8 = recipe != Recipe::bf16;
  const std::int64_t plain = fp8 ? kSlack + s.hidden + s.intermediate : elements;
  for (std::int64_t i = 0; i < plain; ++i) blocks->values.push_back(to_bf16(random.symmetric(0.02f)));
  for (std::int64_t i = 0; fp8 && i < elements; ++i) {
    const auto code = static_cast<std::uint8_t>(random.bits() >> 56);
    blocks->codes.push_back((code & 0x7F) == 0x7F ? 0 : code);
  }
  for (std::int64_t i = 0; i < elements / 128; ++i) blocks->scales.push_back(1.2e-4f * (0.5f + random.unit()));
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    const std::int64_t at = random.below(static_cast<std::int32_t>(kSlack / 64)) * std::int64_t{64};
    QuantTensor t;
    t.codes = {fp8 ? static_cast<const void*>(blocks->codes.data() + at) : blocks->values.data() + at,
               fp8 ? DType::e4m3 : DType::bf16,
               rows,
               cols,
               cols,
               1};
    if (recipe == Recipe::fp8_tensor) t.tensor_scale = 1.2e-4f;
    if (recipe == Recipe::fp8_block) {
      t.block_scale = {blocks->scales.data() + random.below(64), DType::f32, 128, 128, (cols + 127) / 128, 1};
    }
    return t;
  };
  const auto bias = [&](std::int64_t count) {
    return BiasView{blocks->values.data() + random.below(static_cast<std::int32_t>(kSlack)), DType::bf16, count, 1};
  };
  ExpertWeights w;
  for (std::int32_t e = 0; e < s.local; ++e) {
    w.gate.push_back(matrix(s.intermediate, s.hidden));
    w.up.push_back(matrix(s.intermediate, s.hidden));
    w.down.push_back(matrix(s.hidden, s.intermediate));
    if (!s.bias) continue;
    w.gate_bias.push_back(bias(s.intermediate));
    w.up_bias.push_back(bias(s.intermediate));
    w.down_bias.push_back(bias(s.hidden));
  }
  w.keep_alive = blocks;
  return w;
}

// Device memory of one batch, its output and its workspace; rows are random bits of moderate size, made on the host
// once and repeated, because a large batch of its own would take longer to make than to compute.
void compare_large(Check& check, const LargeShape& s, Recipe recipe, const std::vector<std::int64_t>& token_counts) {
  Problem problem;
  problem.recipe = recipe;
  problem.device = {DeviceKind::cuda, 0};
  problem.layer.hidden = s.hidden;
  problem.layer.intermediate = s.intermediate;
  problem.layer.has_bias = s.bias;
  problem.layer.routing.experts = s.experts;
  problem.layer.routing.top_k = s.top_k;
  if (s.bias) problem.layer.activation.kind = ActivationKind::swiglu_oai;
  const ExpertWeights weights = large_weights(s, recipe, 5);
  const auto runner = cuda::make_hopper_runner(nullptr);
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const cuda::Oracle oracle(problem, weights, 0);
  for (const std::int64_t tokens : token_counts) {
    constexpr std::int64_t kDistinct = 512;
    Batch batch = random_batch(problem.layer, std::min(tokens, kDistinct), DType::bf16, RoutePattern::uniform, 7);
    batch.tokens = tokens;
    for (std::size_t i = batch.hidden.size(); i < static_cast<std::size_t>(tokens * s.hidden * 2); i *= 2) {
      batch.hidden.resize(std::min(2 * i, static_cast<std::size_t>(tokens * s.hidden * 2)));
      std::copy_n(batch.hidden.begin(), batch.hidden.size() - i, batch.hidden.begin() + static_cast<std::ptrdiff_t>(i));
    }
    Random random(static_cast<std::uint64_t>(tokens));
    for (std::int64_t r = std::ssize(batch.ids); r < tokens * s.top_k; ++r) {
      batch.ids.push_back(SlotId{random.below(s.experts)});
      batch.weights.push_back(random.unit());
    }
    const DeviceBatch device(batch);
    const DeviceArray<Bf16> out(tokens * s.hidden);
    const DeviceArray<std::byte> memory(static_cast<std::int64_t>(runner->workspace_bytes(problem, tokens)));
    Workspace workspace(memory.data(), memory.bytes());
    RunArgs args;
    args.hidden = device.view();
    args.ids = device.ids.data();
    args.weights = device.weights.data();
    args.top_k = s.top_k;
    args.slots = {0, s.local};
    args.sum = dense_view(out.data(), DType::bf16, tokens, s.hidden);
    args.workspace = &workspace;
    runner->run(*prepared, args);
    cuda::check(cudaDeviceSynchronize(), "a run");
    const std::string what =
        std::string(s.name) + " T " + std::to_string(tokens) + " " + std::string(recipe_info(recipe).name);
    std::vector<std::int64_t> list = {0, tokens / 3, tokens - 1};
    const auto expected = oracle.rows(device.oracle_batch(), list).sum;
    std::vector<float> got;
    for (const std::int64_t t : list) {
      for (const Bf16 v : out.download(t * s.hidden, s.hidden)) got.push_back(to_float(v));
    }
    check.at_most(relative_l2(got, expected), s.intermediate < 512 ? small_layer_bound(recipe) : oracle_bound(recipe),
                  what);
    check.expect(out.intact() && memory.intact(), "wrote outside: " + what);
  }
}

void model_shapes(Check& check) {
  constexpr LargeShape kShapes[] = {{"mixtral-8x7b", 4096, 14336, 8, 8, 2, false},
                                    {"qwen3-30b", 2048, 768, 128, 128, 8, false},
                                    {"qwen3-235b", 4096, 1536, 128, 128, 8, false},
                                    {"deepseek-v3-ep8", 7168, 2048, 256, 32, 8, false},
                                    {"gpt-oss-20b", 2880, 2880, 32, 32, 4, true}};
  for (const LargeShape& shape : kShapes) {
    for (const Recipe recipe : kRecipes) compare_large(check, shape, recipe, {1, 4, 16, 64, 256, 1024, 4096});
  }
}

// Slot rows, images and outputs of more than 2^31 elements.
void large_offsets(Check& check) {
  for (const Recipe recipe : kRecipes) {
    compare_large(check, {"offsets", 4352, 128, 8, 8, 8, false}, recipe, {65536});
  }
}

}  // namespace

std::vector<Test> runner_large_tests() {
  return {{"runner: shapes of models", model_shapes}, {"runner: offsets beyond 2^31", large_offsets}};
}

}  // namespace sluice::gpu_tests
