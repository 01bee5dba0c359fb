// The cases of SGLang's own tests (test_cutedsl_moe.py, test_mxfp4_sm90_cutlass.py), on the reference runner with the
// weights read out of the layouts' bytes: bit-equal to the canonical weights, where SGLang compares with tolerances.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/thread_pool.h"
#include "moe/layout/layout_runner.h"
#include "moe/layout/quant_layers.h"
#include "moe/layout/reader.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"

namespace sluice::layout {
namespace {

using testing::OutputKind;
using testing::RawOptions;

// Recipes of a format.
std::vector<Recipe> recipes_of(const RawOptions& o) {
  if (o.code == DType::bf16) return {Recipe::f32, Recipe::bf16};
  if (o.code == DType::e4m3) return {Recipe::f32, Recipe::fp8_tensor};
  if (o.scale == DType::e8m0) return {Recipe::f32, Recipe::mxfp4_w4a16, Recipe::mxfp4_w4a8};
  return {Recipe::f32, Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl, Recipe::nvfp4_w4a4_cutlass};
}

DType input_of(Recipe recipe) { return recipe == Recipe::f32 ? DType::f32 : DType::bf16; }

Problem problem_of(const LayerSpec& layer, Recipe recipe) {
  Problem p;
  p.layer = layer;
  p.recipe = recipe;
  return p;
}

std::vector<float> run_on(const Runner& runner, const Problem& problem, const testing::Batch& batch,
                          ExpertWeights weights, const testing::RunOptions& options = {}) {
  const auto prepared = runner.prepare(problem, std::move(weights));
  return testing::run_batch(runner, *prepared, problem, batch, options);
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_TRUE(std::any_of(a.begin(), a.end(), [](float v) { return v != 0.0f; })) << what;
  ASSERT_TRUE(std::all_of(a.begin(), a.end(), [](float v) { return std::isfinite(v); })) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

// The canonical weights and those of the layout, in each recipe.
void expect_bit_equal(LayoutKind kind, const RawOptions& o, std::int64_t tokens, std::int32_t top_k,
                      const std::vector<Recipe>& recipes) {
  ThreadPool pool(2);
  const auto reference = make_reference_runner(&pool);
  const auto through_layout = make_layout_runner(kind, &pool);
  const ExpertWeights weights = testing::quant_experts(o);
  const LayerSpec layer = testing::layer_of(o, top_k);
  for (const Recipe recipe : recipes) {
    const Problem problem = problem_of(layer, recipe);
    const std::string what = std::string(layout_name(kind)) + " " + std::string(recipe_info(recipe).name);
    ASSERT_TRUE(through_layout->supports(problem).ok) << what << ": " << through_layout->supports(problem).reason;
    const auto batch = testing::random_batch(layer, tokens, input_of(recipe), testing::RoutePattern::uniform, 5);
    expect_same_bits(run_on(*reference, problem, batch, weights), run_on(*through_layout, problem, batch, weights),
                     what);
  }
}

RawOptions cutedsl_case(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate) {
  RawOptions o;
  o.experts = experts, o.hidden = hidden, o.intermediate = intermediate, o.seed = 42;
  return o;
}

// test_v2_wrapper_correctness: T, H, I, E, k.
TEST(CuteDslV2, WrapperCasesAreBitEqual) {
  for (const auto& [tokens, top_k] : {std::pair{128, 2}, {256, 4}, {128, 8}}) {
    expect_bit_equal(LayoutKind::cutedsl, cutedsl_case(256, 256, 512), tokens, top_k, {Recipe::nvfp4_w4a4_cutedsl});
  }
}

TEST(CuteDslV2, EveryRecipeOfNvfp4IsBitEqual) {
  const RawOptions o = cutedsl_case(16, 256, 512);
  expect_bit_equal(LayoutKind::cutedsl, o, 32, 4, recipes_of(o));
  expect_bit_equal(LayoutKind::cutlass, o, 32, 4, recipes_of(o));
}

// test_v2_cuda_graph_parity: here a second run of the same prepared experts has the same bits.
TEST(CuteDslV2, ASecondRunHasTheSameBits) {
  const RawOptions o = cutedsl_case(32, 256, 512);
  const auto runner = make_layout_runner(LayoutKind::cutedsl, nullptr);
  const Problem problem = problem_of(testing::layer_of(o, 4), Recipe::nvfp4_w4a4_cutedsl);
  const auto batch = testing::random_batch(problem.layer, 64, DType::bf16, testing::RoutePattern::uniform, 9);
  const auto prepared = runner->prepare(problem, testing::quant_experts(o));
  expect_same_bits(testing::run_batch(*runner, *prepared, problem, batch),
                   testing::run_batch(*runner, *prepared, problem, batch), "second run");
}

// test_v2_ep_sharded_allreduce: each rank prepares its own experts; the partial outputs add up to the whole. The slot
// rows are bit-equal; the sums differ by the order of at most k additions.
void expect_ranks_add_up(std::int64_t tokens, std::int32_t top_k, std::int32_t ranks) {
  ThreadPool pool(2);
  const RawOptions o = cutedsl_case(256, 256, 512);
  const auto runner = make_layout_runner(LayoutKind::cutedsl, &pool);
  const Problem problem = problem_of(testing::layer_of(o, top_k), Recipe::nvfp4_w4a4_cutedsl);
  const auto batch = testing::random_batch(problem.layer, tokens, DType::bf16, testing::RoutePattern::uniform, 3);
  const ExpertWeights weights = testing::quant_experts(o);
  const std::vector<float> whole = run_on(*runner, problem, batch, weights);
  std::vector<float> sum(whole.size()), magnitude(whole.size());
  const std::int32_t local = 256 / ranks;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    testing::RunOptions part;
    part.slots = SlotRange{rank * local, local};
    const auto partial = run_on(*runner, problem, batch, testing::slice_experts(weights, rank * local, local), part);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += partial[i];
      magnitude[i] += std::fabs(partial[i]);
    }
  }
  std::size_t nonzero = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float bound = static_cast<float>(top_k + ranks) * 0x1p-23f * magnitude[i];
    ASSERT_LE(std::fabs(sum[i] - whole[i]), bound) << i;
    nonzero += whole[i] != 0.0f ? 1 : 0;
  }
  EXPECT_GT(nonzero, sum.size() / 2);
}

TEST(CuteDslV2, PartsOfTwoRanksAddUp) { expect_ranks_add_up(128, 2, 2); }
TEST(CuteDslV2, PartsOfFourRanksAddUp) { expect_ranks_add_up(128, 2, 4); }
TEST(CuteDslV2, PartsOfEightRanksAddUp) { expect_ranks_add_up(128, 8, 8); }

// test_v1_masked_kernel_rejects_v2_w13_layout: the bytes of one layout read as another give other numbers.
TEST(CuteDslV1, BytesOfAnotherLayoutGiveOtherNumbers) {
  const RawOptions o = cutedsl_case(8, 128, 512);
  const auto reference = make_reference_runner(nullptr);
  const Problem problem = problem_of(testing::layer_of(o, 2), Recipe::f32);
  const auto batch = testing::random_batch(problem.layer, 16, DType::f32, testing::RoutePattern::uniform, 3);
  const ExpertWeights weights = testing::quant_experts(o);
  const std::vector<float> right = run_on(*reference, problem, batch, weights);
  PreparedLayout p = prepare_layout(LayoutKind::cutedsl, weights);
  expect_same_bits(right, run_on(*reference, problem, batch, read_layout(p)), "unchanged");
  p.kind = LayoutKind::rows8;
  p.w13_scale.shape = {8, 1024, 8}, p.w13_scale.strides = {8192, 8, 1};
  p.w2_scale.shape = {8, 128, 32}, p.w2_scale.strides = {4096, 32, 1};
  EXPECT_NE(run_on(*reference, problem, batch, read_layout(p)), right);
}

// test_mxfp4_sm90_cutlass.py: E, H, I.
struct Sm90Case {
  std::int64_t experts, hidden, intermediate, tokens;
  std::int32_t top_k;
};
constexpr Sm90Case kSm90[] = {
    {4, 256, 256, 4, 2}, {8, 768, 384, 16, 2}, {8, 1024, 1024, 32, 4}, {4, 192, 192, 8, 2}, {4, 2880, 2880, 4, 2}};

RawOptions gpt_oss(const Sm90Case& c) {
  RawOptions o;
  o.experts = c.experts, o.hidden = c.hidden, o.intermediate = c.intermediate;
  o.scale = DType::e8m0, o.bias = true, o.interleaved = true;
  return o;
}

std::int64_t to128(std::int64_t n) { return (n + 127) / 128 * 128; }

// 4-bit code of row r of the padded [up ; gate] or of w2, by the addresses of FlashInfer's kernel.
std::uint8_t sm90_code_at(const Tensor& t, std::int64_t e, std::int64_t r, std::int64_t c) {
  static constexpr int kPlaces[4][4] = {{6, 7, 8, 15}, {3, 4, 5, 12}, {0, 1, 2, 9}, {13, 10, 11, 14}};
  const std::int64_t rows = t.shape[1], row_bytes = t.shape[2];
  const std::int64_t byte = c / 2, mma = byte % 32 / 8, lane = mma * 4 + byte % 4;
  const std::int64_t row = r / 16 * 16 + r % 8 + mma % 2 * 8;
  const std::uint8_t* p = t.bytes.data() + (e * rows + row) * row_bytes + byte / 32 * 32 + lane / 8 * 16 + lane % 4 * 4;
  const int half = c % 2 == 0 ? p[0] | p[1] << 8 : p[2] | p[3] << 8;
  const std::int64_t j = byte % 8 / 4 * 2 + r % 16 / 8;
  int code = 0;
  for (int bit = 0; bit < 4; ++bit) code |= (half >> kPlaces[j][bit] & 1) << bit;
  return static_cast<std::uint8_t>(code);
}

// 4-bit code and scale of a canonical weight; 0 outside it.
std::uint8_t code_of(const QuantTensor& t, std::int64_t r, std::int64_t c) {
  if (r >= t.codes.rows || c >= t.codes.cols) return 0;
  const auto byte = static_cast<const std::uint8_t*>(t.codes.data)[r * t.codes.row_stride / 2 + c / 2];
  return c % 2 == 0 ? byte & 15 : byte >> 4;
}
std::uint8_t scale_of(const QuantTensor& t, std::int64_t r, std::int64_t c) {
  if (r >= t.codes.rows || c * 32 >= t.codes.cols) return 0;
  return static_cast<const std::uint8_t*>(t.block_scale.data)[r * t.block_scale.row_stride + c];
}

// Weight of row r of a padded tensor: w13 is up above gate, each half padded.
const QuantTensor& weight_of_row(const ExpertWeights& w, std::size_t e, bool w13, std::int64_t half, std::int64_t r) {
  return !w13 ? w.down[e] : r < half ? w.up[e] : w.gate[e];
}

void expect_sm90_bytes(const ExpertWeights& w, const Tensor& codes, const Tensor& scales, bool w13, std::int64_t half) {
  const std::int64_t rows = codes.shape[1], cols = 2 * codes.shape[2];
  ASSERT_EQ(scales.shape, (std::vector<std::int64_t>{codes.shape[0], rows / 64, cols / 128, 16, 16}));
  for (std::int64_t e = 0; e < codes.shape[0]; ++e) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const QuantTensor& t = weight_of_row(w, static_cast<std::size_t>(e), w13, half, r);
      const std::int64_t n = w13 && r >= half ? r - half : r;
      for (std::int64_t c = 0; c < cols; ++c)
        ASSERT_EQ(sm90_code_at(codes, e, r, c), code_of(t, n, c)) << r << " " << c;
      for (std::int64_t c = 0; c < cols / 32; ++c) {
        const std::int64_t block = (e * (rows / 64) + r / 64) * (cols / 128) + c / 4;
        ASSERT_EQ(scales.bytes[block * 256 + r % 16 * 16 + r % 64 / 16 * 4 + c % 4], scale_of(t, n, c))
            << r << " " << c;
      }
    }
  }
}

// test_process_weights_matches_direct_interleave: every code, scale and bias of the prepared bytes.
TEST(Sm90Mxfp4, BytesOfTheFiveShapes) {
  for (const Sm90Case& c : kSm90) {
    const RawOptions o = gpt_oss(c);
    const ExpertWeights w = testing::quant_experts(o);
    const PreparedLayout p = prepare_layout(LayoutKind::sm90_mxfp4, w);
    const std::int64_t half = to128(c.intermediate);
    EXPECT_EQ(p.w13.shape, (std::vector<std::int64_t>{c.experts, 2 * half, to128(c.hidden) / 2}));
    EXPECT_EQ(p.w2.shape, (std::vector<std::int64_t>{c.experts, to128(c.hidden), half / 2}));
    expect_sm90_bytes(w, p.w13, p.w13_scale, true, half);
    expect_sm90_bytes(w, p.w2, p.w2_scale, false, half);
    for (std::int64_t n = 0; n < c.intermediate; ++n) {
      const auto value = [&](const BiasView& b) { return static_cast<const std::uint16_t*>(b.data)[n]; };
      const auto* bias = reinterpret_cast<const std::uint16_t*>(p.w13_bias.bytes.data());
      ASSERT_EQ(bias[n], value(w.up_bias[0]));
      ASSERT_EQ(bias[half + n], value(w.gate_bias[0]));
    }
  }
}

// test_apply_sm90_cutlass_matches_flashinfer_direct: the same shapes through the runner.
TEST(Sm90Mxfp4, TheFiveShapesAreBitEqual) {
  for (const Sm90Case& c : kSm90) {
    expect_bit_equal(LayoutKind::sm90_mxfp4, gpt_oss(c), c.tokens, c.top_k, {Recipe::mxfp4_w4a16});
  }
}

// Every layout x format x recipe on small layers, gated or not, with and without biases.
TEST(EveryLayout, IsBitEqualInEveryRecipe) {
  struct Case {
    DType code, scale;
    std::vector<LayoutKind> kinds;
  };
  const std::vector<Case> cases = {
      {DType::bf16, DType::e4m3, {LayoutKind::cutlass, LayoutKind::rows8, LayoutKind::rows1}},
      {DType::e4m3, DType::e4m3, {LayoutKind::cutlass, LayoutKind::rows8, LayoutKind::rows1}},
      {DType::e2m1, DType::e4m3, {LayoutKind::cutedsl, LayoutKind::cutlass, LayoutKind::rows8, LayoutKind::rows1}},
      {DType::e2m1, DType::e8m0, {LayoutKind::sm90_mxfp4, LayoutKind::rows8, LayoutKind::rows1}}};
  for (const Case& c : cases) {
    for (const bool gated : {true, false}) {
      RawOptions o;
      o.experts = 5, o.hidden = 384, o.intermediate = 128, o.code = c.code, o.scale = c.scale, o.gated = gated;
      o.bias = gated, o.shared_scale = c.code == DType::e4m3;
      for (const LayoutKind kind : c.kinds) expect_bit_equal(kind, o, 9, 3, recipes_of(o));
    }
  }
}

}  // namespace
}  // namespace sluice::layout
