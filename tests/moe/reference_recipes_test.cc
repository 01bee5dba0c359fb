// Each quantised recipe on one expert with numbers chosen so that every rounding point and the place of every scale
// shows, computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"

namespace sluice {
namespace {

using testing::Batch;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

// All float stages, and byte stages as numbers.
class Recorder final : public StageSink {
 public:
  std::map<std::string, Floats> rows;
  void record(std::string_view stage, const ConstTensorView& v, const std::int64_t* /*route*/) override {
    Floats& out = rows[std::string(stage)];
    for (std::int64_t r = 0; r < v.rows; ++r) {
      for (std::int64_t c = 0; c < v.cols; ++c) {
        out.push_back(v.dtype == DType::u8 ? static_cast<float>(v.row<std::uint8_t>(r)[c]) : v.row<float>(r)[c]);
      }
    }
  }
};

// One expert, one token, relu2 (so that GEMM1 is `up` alone), H = cols of up.
struct OneExpert {
  Problem problem;
  ExpertWeights weights;
  Recorder stages;

  OneExpert(Recipe recipe, std::int64_t hidden, std::int64_t intermediate) {
    problem.recipe = recipe;
    problem.layer.hidden = hidden;
    problem.layer.intermediate = intermediate;
    problem.layer.activation.kind = ActivationKind::relu2;
    problem.layer.routing.experts = 1;
    problem.layer.routing.top_k = 1;
  }

  Floats run(const Floats& hidden) {
    Batch b{1, problem.layer.hidden, 1, DType::bf16, {}, {SlotId{0}}, {1.0f}};
    b.hidden.resize(hidden.size() * 2);
    for (std::size_t i = 0; i < hidden.size(); ++i) testing::detail::store(b.hidden.data(), b.dtype, i, hidden[i]);
    const auto runner = make_reference_runner(nullptr);
    testing::RunOptions options;
    options.stages = &stages;
    return testing::run_batch(*runner, *runner->prepare(problem, ExpertWeights(weights)), problem, b, options);
  }
};

// x = 100 under the scale 0.3: 100 / 0.3f = 333.33 > e4m3 320 (0x7A). up = 5 (0x4A) with scale 0.1 of the matrix and
// down = 3 (0x44) with the row scales 0.7 and 0.9.
//   up  = (1600 * 0.3f) * 0.1f = 48; 48^2 = 2304 under the scale 7: 329.1 > 320
//   out = bf16((960 * 7) * 0.7f) = bf16(4704) = 4704, bf16((960 * 7) * 0.9f) = bf16(6048) = 6048
TEST(ReferenceRecipes, Fp8TensorStatic) {
  OneExpert one(Recipe::fp8_tensor, 2, 1);
  const Bytes up = {0x4A, 0x00}, down = {0x44, 0x44};
  const Floats row_scales = {0.7f, 0.9f};
  one.weights.up.push_back({{up.data(), DType::e4m3, 1, 2, 2, 1}, {}, 0.1f});
  one.weights.down.push_back({{down.data(), DType::e4m3, 2, 1, 1, 1}, {row_scales.data(), DType::f32, 1, 1, 1, 1}});
  one.weights.input_scales = {{}, {0.3f}, {7.0f}};
  EXPECT_EQ(one.run({100.0f, 0.0f}), (Floats{4704.0f, 6048.0f}));
  EXPECT_EQ(one.stages.rows["gemm1_input.codes"], (Floats{0x7A, 0}));
  EXPECT_EQ(one.stages.rows["gemm1_input.sum_scales"], (Floats{0.3f}));
  EXPECT_EQ(one.stages.rows["gemm1_input"], (Floats{320.0f * 0.3f, 0.0f}));
  EXPECT_EQ(one.stages.rows["up"], (Floats{1600.0f * 0.3f * 0.1f}));
  EXPECT_EQ(one.stages.rows["intermediate.codes"], (Floats{0x7A}));
  EXPECT_EQ(one.stages.rows["intermediate"], (Floats{2240.0f}));
}

// (acc * x) * w and acc * (x * w) differ in the last bit for some of these.
TEST(ReferenceRecipes, Fp8TensorMultipliesByTheInputScaleFirst) {
  bool differs = false;
  for (const float x_scale : {0.3f, 0.7f, 1.1f, 1.7f}) {
    OneExpert one(Recipe::fp8_tensor, 1, 1);
    const Bytes codes = {0x4E};  // 7
    const float w_scale = 0.1f;
    one.weights.up.push_back({{codes.data(), DType::e4m3, 1, 1, 1, 1}, {}, w_scale});
    one.weights.down.push_back({{codes.data(), DType::e4m3, 1, 1, 1, 1}, {}, w_scale});
    one.weights.input_scales = {{}, {x_scale}, {1.0f}};
    one.run({x_scale * 1.0f});
    const float acc = 7.0f;  // the input is nearest to code 1
    EXPECT_EQ(one.stages.rows["up"], (Floats{acc * x_scale * w_scale}));
    const float other = acc * (x_scale * w_scale);
    differs = differs || other != acc * x_scale * w_scale;
  }
  EXPECT_TRUE(differs);
}

// Without scales in the file: amax / 448 of each row. x = [448, 1]: scale 1, codes 0x7E and 0x38.
TEST(ReferenceRecipes, Fp8TensorPerToken) {
  OneExpert one(Recipe::fp8_tensor, 2, 1);
  const Bytes up = {0x38, 0x40}, down = {0x38, 0xB8};  // 1, 2; 1, -1
  one.weights.up.push_back({{up.data(), DType::e4m3, 1, 2, 2, 1}, {}, 0.5f});
  one.weights.down.push_back({{down.data(), DType::e4m3, 2, 1, 1, 1}, {}, 2.0f});
  // up = (448 + 2) * 1 * 0.5 = 225; 225^2 = 50625, scale 50625 / 448 = 113.00223, code 448
  const float scale = 50625.0f / 448.0f;
  const float out = round_to_bf16(448.0f * scale * 2.0f);
  EXPECT_EQ(one.run({448.0f, 1.0f}), (Floats{out, -out}));
  EXPECT_EQ(one.stages.rows["gemm1_input.sum_scales"], (Floats{1.0f}));
  EXPECT_EQ(one.stages.rows["gemm1_input.codes"], (Floats{0x7E, 0x38}));
  EXPECT_EQ(one.stages.rows["up"], (Floats{225.0f}));
  EXPECT_EQ(one.stages.rows["intermediate.sum_scales"], (Floats{scale}));
}

// 130 inputs: a group of 128 and one of 2, with amax 448 and 896, so scales 1 and 2; weights 1 with block scales 0.5
// and 4. Sum of group 0: 448 + 127; of group 1: (448 + 1.0) as codes of 896 and 2.
TEST(ReferenceRecipes, Fp8BlockScalesEachSegment) {
  OneExpert one(Recipe::fp8_block, 130, 1);
  const Bytes up(130, 0x38), down(130, 0x38);
  const Floats up_scales = {0.5f, 4.0f}, down_scales = {0.25f, 2.0f};  // down: rows 0..127 and 128, 129
  one.weights.up.push_back({{up.data(), DType::e4m3, 1, 130, 130, 1}, {up_scales.data(), DType::f32, 128, 128, 2, 1}});
  one.weights.down.push_back(
      {{down.data(), DType::e4m3, 130, 1, 1, 1}, {down_scales.data(), DType::f32, 128, 128, 1, 1}});
  Floats x(130, 1.0f);
  x[0] = 448.0f;
  x[128] = 896.0f;
  x[129] = 2.0f;
  const Floats out = one.run(x);
  EXPECT_EQ(one.stages.rows["gemm1_input.sum_scales"], (Floats{1.0f, 2.0f}));
  EXPECT_EQ(one.stages.rows["up"], (Floats{575.0f * 0.5f + 449.0f * 8.0f}));  // 3879.5
  const float square = 3879.5f * 3879.5f, scale = square / 448.0f;
  EXPECT_EQ(one.stages.rows["intermediate.sum_scales"], (Floats{scale}));
  EXPECT_EQ(out[127], round_to_bf16(448.0f * (scale * 0.25f)));
  EXPECT_EQ(out[128], round_to_bf16(448.0f * (scale * 2.0f)));
}

// e2m1 codes with block scales 2 and 0.5 of 16 columns each; the tensor scale 0.1 multiplies the sum.
TEST(ReferenceRecipes, Nvfp4WeightsWithBf16Inputs) {
  OneExpert one(Recipe::nvfp4_w4a16, 32, 1);
  const Bytes up(16, 0x52);  // 1 and 3 alternate
  const Bytes scales = {0x40, 0x30};
  const Bytes down(32, 0x07), down_scales(32, 0x38);  // 6 in the even column; the byte's other nibble is unused
  one.weights.up.push_back({{up.data(), DType::e2m1, 1, 32, 32, 1}, {scales.data(), DType::e4m3, 1, 16, 2, 1}, 0.1f});
  one.weights.down.push_back(
      {{down.data(), DType::e2m1, 32, 1, 2, 1}, {down_scales.data(), DType::e4m3, 1, 16, 1, 1}, 0.01f});
  Floats x(32, 1.0f);
  x[0] = 1.0f + 0x1p-7f;  // kept: a bf16 number
  // sum = 8 * (1 + 3) * 2 + 2^-7 * 2 + 8 * (1 + 3) * 0.5 = 80 + 2^-6
  const Floats out = one.run(x);
  EXPECT_EQ(one.stages.rows["up"], (Floats{(80.0f + 0x1p-6f) * 0.1f}));
  const float square = one.stages.rows["up"][0] * one.stages.rows["up"][0];
  EXPECT_EQ(one.stages.rows["intermediate"], (Floats{round_to_bf16(square)}));
  EXPECT_EQ(out[0], round_to_bf16(round_to_bf16(square) * 6.0f * 0.01f));
  EXPECT_EQ(one.stages.rows.count("intermediate.codes"), 0u);
}

TEST(ReferenceRecipes, Mxfp4WeightsWithBf16Inputs) {
  OneExpert one(Recipe::mxfp4_w4a16, 64, 1);
  const Bytes up(32, 0x52), scales = {128, 126};     // 1 and 3; scales 2 and 0.5
  const Bytes down(64, 0x07), down_scales(64, 120);  // 6 * 2^-7
  one.weights.up.push_back({{up.data(), DType::e2m1, 1, 64, 64, 1}, {scales.data(), DType::e8m0, 1, 32, 2, 1}});
  one.weights.down.push_back({{down.data(), DType::e2m1, 64, 1, 2, 1}, {down_scales.data(), DType::e8m0, 1, 32, 1, 1}});
  const Floats out = one.run(Floats(64, 0.5f));  // 0.5 * (16 * 4 * 2 + 16 * 4 * 0.5) = 80
  EXPECT_EQ(one.stages.rows["up"], (Floats{80.0f}));
  EXPECT_EQ(out[63], 300.0f);  // 6400 * 6 / 128
}

// One MXFP8 block of amax 900: 900 / 448 is rounded up to the scale 4 (129); codes of 225 > 224 (0x76) and 25 > 24.
TEST(ReferenceRecipes, Mxfp4WeightsWithMxfp8Inputs) {
  OneExpert one(Recipe::mxfp4_w4a8, 32, 1);
  const Bytes up(16, 0x22), scales = {127};
  const Bytes down(32, 0x02), down_scales(32, 127);
  one.weights.up.push_back({{up.data(), DType::e2m1, 1, 32, 32, 1}, {scales.data(), DType::e8m0, 1, 32, 1, 1}});
  one.weights.down.push_back({{down.data(), DType::e2m1, 32, 1, 2, 1}, {down_scales.data(), DType::e8m0, 1, 32, 1, 1}});
  Floats x(32, 0.0f);
  x[0] = 900.0f;
  x[1] = 100.0f;
  const Floats out = one.run(x);
  EXPECT_EQ(one.stages.rows["gemm1_input.block_scales"], (Floats{129}));
  EXPECT_EQ(one.stages.rows["gemm1_input"][0], 896.0f);
  EXPECT_EQ(one.stages.rows["gemm1_input"][1], 96.0f);
  EXPECT_EQ(one.stages.rows["up"], (Floats{992.0f}));
  // 992^2 = 984064; / 448 = 2196.57 > 2^12; 984064 / 4096 = 240.25 > 240
  EXPECT_EQ(one.stages.rows["intermediate.block_scales"], (Floats{127 + 12}));
  EXPECT_EQ(out[5], 240.0f * 4096.0f);
}

// NVFP4 inputs under x_tensor_scale 1 / 448: g = 448. amax 6 gives s = e4m3(448 * 6 / 6) = 448, multiplier
// 1 / (448 / 448) = 1: codes 6, 1, 3 (from 2.6), 0 (from 0.2).
struct W4a4 : ::testing::TestWithParam<Recipe> {
  Bytes up = Bytes(8, 0x22), up_scales = {0x40};  // 1 with block scale 2
  Bytes down = Bytes(16, 0x02), down_scales = Bytes(16, 0x38);
  OneExpert one{GetParam(), 16, 1};

  W4a4() {
    one.weights.up.push_back({{up.data(), DType::e2m1, 1, 16, 16, 1}, {up_scales.data(), DType::e4m3, 1, 16, 1, 1}});
    one.weights.down.push_back(
        {{down.data(), DType::e2m1, 16, 1, 2, 1}, {down_scales.data(), DType::e4m3, 1, 16, 1, 1}});
    one.weights.up[0].tensor_scale = 0.3f;
    one.weights.down[0].tensor_scale = 0.7f;
    one.weights.input_scales = {{}, {1.0f / 448.0f}, {1.0f / 448.0f}};
  }
};

TEST_P(W4a4, RoundsWhereThePublishedKernelsDo) {
  const bool cutlass = GetParam() == Recipe::nvfp4_w4a4_cutlass;
  const Floats up_bias = {0.001f}, down_bias(16, 0.0f);
  one.problem.layer.has_bias = true;
  one.weights.up_bias.push_back({up_bias.data(), DType::f32, 1, 1});
  one.weights.down_bias.push_back({down_bias.data(), DType::f32, 16, 1});
  Floats x(16, 0.0f);
  x[0] = 6.0f;
  x[1] = 1.0f;
  x[2] = 2.6f;
  x[3] = 0.2f;
  const Floats out = one.run(x);
  EXPECT_EQ(one.stages.rows["gemm1_input.block_scales"], (Floats{0x7E}));
  EXPECT_EQ(one.stages.rows["gemm1_input.codes"], (Floats{0x27, 0x05, 0, 0, 0, 0, 0, 0}));
  // (6 + 1 + 3) * 448 * 2 * fp32(1/448 * 0.3) + bias
  const float alpha = 1.0f / 448.0f * 0.3f;
  float up_value = 8960.0f * alpha;
  if (cutlass) up_value = round_to_bf16(up_value);
  up_value += 0.001f;
  EXPECT_EQ(one.stages.rows["up"], (Floats{up_value}));
  // The square, near 36, is quantised: s = e4m3(448 * 36 / 6) saturates at 448, code 6 of 6.
  EXPECT_EQ(one.stages.rows["intermediate.codes"], (Floats{0x07}));
  EXPECT_EQ(one.stages.rows["intermediate.block_scales"], (Floats{0x7E}));
  EXPECT_EQ(out[0], round_to_bf16(6.0f * 448.0f * (1.0f / 448.0f * 0.7f)));
}

// up = 6 * 2 = 12 + 1/16; its square 145.50390625 is 146 in bf16. The input scale puts g * v / 6 at 16.97 or 17.03,
// on either side of the middle of the e4m3 numbers 16 (0x58 = 88) and 18 (89).
TEST_P(W4a4, TheActivatedRowIsRoundedToBf16OnlyInCutlass) {
  const bool cutlass = GetParam() == Recipe::nvfp4_w4a4_cutlass;
  one.weights.up[0].tensor_scale = 1.0f;
  one.weights.input_scales = {{}, {1.0f}, {145.75f / (6.0f * 17.0f)}};
  const Floats up_bias = {0.0625f}, down_bias(16, 0.0f);
  one.problem.layer.has_bias = true;
  one.weights.up_bias.push_back({up_bias.data(), DType::f32, 1, 1});
  one.weights.down_bias.push_back({down_bias.data(), DType::f32, 16, 1});
  Floats x(16, 0.0f);
  x[0] = 6.0f;
  one.run(x);
  EXPECT_EQ(one.stages.rows["up"], (Floats{12.0625f}));
  EXPECT_EQ(one.stages.rows["intermediate.block_scales"], Floats(1, cutlass ? 89.0f : 88.0f));
}

TEST_P(W4a4, TheGateAlphaServesUpOnlyOnRequest) {
  const Bytes gate = Bytes(8, 0x22);
  one.problem.layer.activation.kind = ActivationKind::swiglu;
  one.weights.gate.push_back(one.weights.up[0]);
  one.weights.gate[0].codes.data = gate.data();
  one.weights.gate[0].tensor_scale = 0.5f;
  Floats x(16, 0.0f);
  x[0] = 6.0f;
  const float acc = 6.0f * 448.0f * 2.0f;
  for (const bool upstream : {false, true}) {
    one.problem.upstream_gate_alpha = upstream;
    one.stages.rows.clear();
    one.run(x);
    const bool cutlass = GetParam() == Recipe::nvfp4_w4a4_cutlass;
    float expected = acc * (1.0f / 448.0f * (upstream ? 0.5f : 0.3f));
    if (cutlass) expected = round_to_bf16(expected);
    EXPECT_EQ(one.stages.rows["up"], (Floats{expected})) << upstream;
    EXPECT_EQ(one.stages.rows["gate"], (Floats{cutlass ? 6.0f : acc * (1.0f / 448.0f * 0.5f)})) << upstream;
  }
}

TEST_P(W4a4, TheLargestInputScaleOfAllExpertsIsUsed) {
  one.weights.input_scales = {{}, {0.25f, 2.0f, 0.5f}, {1.0f, 0.5f, 4.0f}};  // E of the model, though one is here
  one.run(Floats(16, 1.0f));
  EXPECT_EQ(one.stages.rows["gemm1_input.sum_scales"], (Floats{2.0f}));
  EXPECT_EQ(one.stages.rows["intermediate.sum_scales"], (Floats{4.0f}));
}

INSTANTIATE_TEST_SUITE_P(Recipes, W4a4, ::testing::Values(Recipe::nvfp4_w4a4_cutedsl, Recipe::nvfp4_w4a4_cutlass),
                         [](const auto& test) { return testing::recipe_test_name(test.param); });

// Which of the carried formats each recipe takes.
TEST(ReferenceRecipes, RefusesWeightsOfAnotherFormatByName) {
  testing::LayerOptions o;
  o.layer.hidden = 64;
  o.layer.intermediate = 32;
  o.layer.routing.experts = 2;
  o.layer.routing.top_k = 1;
  const auto runner = make_reference_runner(nullptr);
  const auto family = [](Recipe r) { return std::string(recipe_info(r).name).substr(0, 5); };
  for (const Recipe have : testing::all_recipes()) {
    for (const Recipe want : testing::all_recipes()) {
      if (want == Recipe::f32 || have == Recipe::f32) continue;
      Problem problem;
      problem.layer = o.layer;
      problem.recipe = want;
      const bool same_fp8 = have == want || family(have) != "fp8-t";
      const bool fits = family(have) == family(want) && same_fp8;
      std::string message;
      try {
        runner->prepare(problem, testing::quantized_weights(o, have));
      } catch (const Error& error) {
        message = error.what();
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
      }
      EXPECT_EQ(message.empty(), fits) << recipe_info(have).name << " in " << recipe_info(want).name << message;
      EXPECT_EQ(message.find("gate of expert 0") != std::string::npos, !fits) << message;
    }
  }
}

}  // namespace
}  // namespace sluice
