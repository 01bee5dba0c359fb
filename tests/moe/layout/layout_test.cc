// Whole layouts: shapes, order of the halves, padding, alphas and what is refused.
#include "moe/layout/layout.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "moe/input_scales.h"
#include "moe/layout/quant_layers.h"
#include "moe/layout/reader.h"

namespace sluice::layout {
namespace {

using testing::RawOptions;
using Shape = std::vector<std::int64_t>;

RawOptions nvfp4(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate) {
  RawOptions o;
  o.experts = experts, o.hidden = hidden, o.intermediate = intermediate;
  return o;
}
RawOptions mxfp4(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate) {
  RawOptions o = nvfp4(experts, hidden, intermediate);
  o.scale = DType::e8m0;
  return o;
}

void expect_refused(LayoutKind kind, const ExpertWeights& weights, const std::string& part) {
  try {
    prepare_layout(kind, weights);
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// Byte c of row r of a weight.
std::uint8_t code_byte(const QuantTensor& t, std::int64_t r, std::int64_t c) {
  return static_cast<const std::uint8_t*>(t.codes.data)[r * t.codes.row_stride / 2 + c];
}

TEST(CuteDsl, UpFirstInGroupsOf64Rows) {
  const ExpertWeights w = testing::quant_experts(nvfp4(3, 128, 192));
  const PreparedLayout p = prepare_layout(LayoutKind::cutedsl, w);
  EXPECT_EQ(p.w13.shape, (Shape{3, 384, 64}));
  EXPECT_EQ(p.w2.shape, (Shape{3, 128, 96}));
  EXPECT_EQ(p.w13_scale.shape, (Shape{32, 4, 3, 4, 2, 3}));  // 384 rows, 8 scale columns
  EXPECT_EQ(p.w2_scale.shape, (Shape{32, 4, 1, 4, 3, 3}));
  EXPECT_EQ(p.w13_scale.strides, (Shape{16, 4, 1024, 1, 512, 3072}));
  for (std::size_t e = 0; e < 3; ++e) {
    for (std::int64_t c = 0; c < 64; ++c) {
      const std::uint8_t* rows = p.w13.bytes.data() + e * 384 * 64 + static_cast<std::size_t>(c);
      EXPECT_EQ(rows[0 * 64], code_byte(w.up[e], 0, c));
      EXPECT_EQ(rows[63 * 64], code_byte(w.up[e], 63, c));
      EXPECT_EQ(rows[64 * 64], code_byte(w.gate[e], 0, c));
      EXPECT_EQ(rows[128 * 64], code_byte(w.up[e], 64, c));
      EXPECT_EQ(rows[383 * 64], code_byte(w.gate[e], 191, c));
    }
  }
}

TEST(CuteDsl, ScalesMoveWithTheirRowsBeforeTheSwizzle) {
  const ExpertWeights w = testing::quant_experts(nvfp4(1, 128, 128));
  const PreparedLayout p = prepare_layout(LayoutKind::cutedsl, w);
  const auto* gate = static_cast<const std::uint8_t*>(w.gate[0].block_scale.data);
  const auto* up = static_cast<const std::uint8_t*>(w.up[0].block_scale.data);
  EXPECT_EQ(p.w13_scale.bytes[0], up[0]);
  EXPECT_EQ(p.w13_scale.bytes[4], up[32 * 8]);           // row 32
  EXPECT_EQ(p.w13_scale.bytes[8], gate[0]);              // row 64 is the gate's first
  EXPECT_EQ(p.w13_scale.bytes[12], gate[32 * 8]);        // row 96
  EXPECT_EQ(p.w13_scale.bytes[16], up[1 * 8]);           // row 1
  EXPECT_EQ(p.w13_scale.bytes[512], up[4]);              // scale column 4
  EXPECT_EQ(p.w13_scale.bytes[1024], up[64 * 8]);        // row 128 is row 64 of up
  EXPECT_EQ(p.w13_scale.bytes[1024 + 8], gate[64 * 8]);  // row 192
}

TEST(Cutlass, UpAboveGateAndScalesAsInt32) {
  const ExpertWeights w = testing::quant_experts(nvfp4(2, 96, 80));
  const PreparedLayout p = prepare_layout(LayoutKind::cutlass, w);
  EXPECT_EQ(p.padded_intermediate, 128);  // halves of 80 rows, to 64
  EXPECT_EQ(p.w13.shape, (Shape{2, 256, 48}));
  EXPECT_EQ(p.w2.shape, (Shape{2, 96, 64}));
  EXPECT_EQ(p.w13_scale.element, DType::i32);
  EXPECT_EQ(p.w13_scale.shape, (Shape{2, 256, 2}));  // 6 scale columns to 8, four in an int32
  EXPECT_EQ(p.w2_scale.shape, (Shape{2, 128, 2}));   // 96 rows to 128
  EXPECT_EQ(p.w13_scale.strides, (Shape{512, 2, 1}));
  const std::uint8_t* second = p.w13.bytes.data() + 256 * 48;  // expert 1
  EXPECT_EQ(second[0], code_byte(w.up[1], 0, 0));
  EXPECT_EQ(second[79 * 48 + 47], code_byte(w.up[1], 79, 47));
  EXPECT_EQ(second[80 * 48], 0);  // padding of up, not of the pair
  EXPECT_EQ(second[127 * 48 + 47], 0);
  EXPECT_EQ(second[128 * 48], code_byte(w.gate[1], 0, 0));
  EXPECT_EQ(second[207 * 48 + 47], code_byte(w.gate[1], 79, 47));
  EXPECT_EQ(second[208 * 48], 0);
}

TEST(Cutlass, Bf16IsStackedAndFp8PaddedTo16) {
  RawOptions o = nvfp4(2, 64, 24);
  o.code = DType::bf16;
  const ExpertWeights plain = testing::quant_experts(o);
  const PreparedLayout b = prepare_layout(LayoutKind::cutlass, plain);
  EXPECT_EQ(b.w13.shape, (Shape{2, 48, 64}));
  EXPECT_EQ(b.w13.element, DType::bf16);
  EXPECT_TRUE(b.w13_scale.bytes.empty());
  EXPECT_EQ(b.w13.bytes[24 * 64 * 2], *static_cast<const std::uint8_t*>(plain.gate[0].codes.data));

  o.code = DType::e4m3, o.shared_scale = true;
  const ExpertWeights fp8 = testing::quant_experts(o);
  const PreparedLayout f = prepare_layout(LayoutKind::cutlass, fp8);
  EXPECT_EQ(f.w13.shape, (Shape{2, 64, 64}));
  EXPECT_EQ(f.w2.shape, (Shape{2, 64, 32}));
  EXPECT_EQ(f.w13.bytes[32 * 64], *static_cast<const std::uint8_t*>(fp8.gate[0].codes.data));
  o.shared_scale = false;
  expect_refused(LayoutKind::cutlass, testing::quant_experts(o), "gate and up have different FP8 scales");
}

TEST(RowInterleaves, EightAndSingleRows) {
  const ExpertWeights w = testing::quant_experts(nvfp4(1, 32, 16));
  const PreparedLayout eight = prepare_layout(LayoutKind::rows8, w), one = prepare_layout(LayoutKind::rows1, w);
  const auto row = [](const PreparedLayout& p, std::int64_t r) {
    return p.w13.bytes[static_cast<std::size_t>(r * 16)];
  };
  EXPECT_EQ(row(eight, 7), code_byte(w.up[0], 7, 0));
  EXPECT_EQ(row(eight, 8), code_byte(w.gate[0], 0, 0));
  EXPECT_EQ(row(eight, 16), code_byte(w.up[0], 8, 0));
  EXPECT_EQ(row(one, 0), code_byte(w.up[0], 0, 0));
  EXPECT_EQ(row(one, 1), code_byte(w.gate[0], 0, 0));
  EXPECT_EQ(row(one, 2), code_byte(w.up[0], 1, 0));
  EXPECT_EQ(row(one, 31), code_byte(w.gate[0], 15, 0));
  EXPECT_EQ(one.w13_scale.shape, (Shape{1, 32, 2}));
  const auto* gate_scales = static_cast<const std::uint8_t*>(w.gate[0].block_scale.data);
  EXPECT_EQ(one.w13_scale.bytes[1 * 2 + 1], gate_scales[1]);
}

TEST(Biases, FollowTheRowsOfTheirHalf) {
  RawOptions o = mxfp4(1, 64, 96);
  o.bias = true;
  const ExpertWeights w = testing::quant_experts(o);
  const PreparedLayout p = prepare_layout(LayoutKind::sm90_mxfp4, w);
  const auto* up = static_cast<const std::uint8_t*>(w.up_bias[0].data);
  const auto* gate = static_cast<const std::uint8_t*>(w.gate_bias[0].data);
  EXPECT_EQ(p.w13_bias.shape, (Shape{1, 256}));
  EXPECT_EQ(p.w2_bias.shape, (Shape{1, 128}));
  EXPECT_EQ(p.w13_bias.bytes[2 * 95 + 1], up[2 * 95 + 1]);
  EXPECT_EQ(p.w13_bias.bytes[2 * 96 + 1], 0);
  EXPECT_EQ(p.w13_bias.bytes[2 * 128 + 1], gate[1]);
  const PreparedLayout rows = prepare_layout(LayoutKind::rows1, w);
  EXPECT_EQ(rows.w13_bias.bytes[2 * 3 + 1], gate[2 * 1 + 1]);
}

TEST(NonGated, HasOneHalf) {
  RawOptions o = nvfp4(2, 128, 128);
  o.gated = false;
  const ExpertWeights w = testing::quant_experts(o);
  for (const LayoutKind kind : {LayoutKind::cutedsl, LayoutKind::cutlass, LayoutKind::rows8}) {
    const PreparedLayout p = prepare_layout(kind, w);
    EXPECT_EQ(p.w13.shape, (Shape{2, 128, 64})) << layout_name(kind);
    EXPECT_EQ(p.w13_scale_2.size(), 2u);
  }
  o.intermediate = 192;
  expect_refused(LayoutKind::cutedsl, testing::quant_experts(o), "multiple of 128");
}

TEST(Refusals, NameFormatAndSize) {
  expect_refused(LayoutKind::cutedsl, testing::quant_experts(nvfp4(1, 128, 96)), "I = 96 is not a multiple of 64");
  expect_refused(LayoutKind::cutedsl, testing::quant_experts(nvfp4(1, 192, 64)), "H = 192 is not a multiple of 128");
  expect_refused(LayoutKind::cutedsl, testing::quant_experts(mxfp4(1, 128, 64)), "e2m1 weights with e8m0 scales");
  expect_refused(LayoutKind::sm90_mxfp4, testing::quant_experts(nvfp4(1, 128, 64)), "MXFP4");
  expect_refused(LayoutKind::cutlass, testing::quant_experts(nvfp4(1, 48, 64)), "H = 48 is not a multiple of 32");
  ExpertWeights mixed = testing::quant_experts(nvfp4(2, 128, 64));
  mixed.down[1] = testing::quant_experts(mxfp4(1, 64, 128)).down[0];
  expect_refused(LayoutKind::cutedsl, mixed, "different formats");
}

TEST(Fits, SaysBeforeAnyWeightWhatPrepareWouldSay) {
  RawOptions o = nvfp4(4, 128, 96);
  const LayerSpec layer = testing::layer_of(o, 2);
  EXPECT_NE(fits(LayoutKind::cutedsl, layer, Recipe::nvfp4_w4a16).reason.find("I = 96"), std::string::npos);
  EXPECT_TRUE(fits(LayoutKind::cutlass, layer, Recipe::nvfp4_w4a4_cutlass).ok);
  EXPECT_TRUE(fits(LayoutKind::sm90_mxfp4, layer, Recipe::mxfp4_w4a16).ok);
  EXPECT_FALSE(fits(LayoutKind::sm90_mxfp4, layer, Recipe::nvfp4_w4a16).ok);
  EXPECT_FALSE(fits(LayoutKind::rows8, layer, Recipe::fp8_block).ok);
  EXPECT_TRUE(fits(LayoutKind::cutedsl, layer, Recipe::f32).ok);
}

TEST(Alpha, OneActivationScaleForAllExperts) {
  ExpertWeights w = testing::quant_experts(nvfp4(2, 128, 64));
  w.gate[0].tensor_scale = 0.25f, w.up[0].tensor_scale = 0.5f, w.down[0].tensor_scale = 2.0f;
  w.gate[1].tensor_scale = 3.0f, w.up[1].tensor_scale = 4.0f, w.down[1].tensor_scale = 0.125f;
  w.input_scales.gate = {0.5f, 0.25f}, w.input_scales.up = {0.125f, 2.0f}, w.input_scales.down = {0.0625f, 0.5f};
  const Alphas a = prepare_layout(LayoutKind::cutedsl, w).alphas;
  EXPECT_EQ(a.input_quant, 0.5f);  // 1 / 2, the largest of both shards
  EXPECT_EQ(a.intermediate_quant, 2.0f);
  EXPECT_EQ(a.gate, (std::vector<float>{0.5f, 6.0f}));
  EXPECT_EQ(a.up, (std::vector<float>{1.0f, 8.0f}));
  EXPECT_EQ(a.down, (std::vector<float>{1.0f, 0.0625f}));
  EXPECT_TRUE(a.warnings.empty());
}

// The runners compute with decode scales; the reciprocals are the same numbers.
TEST(Alpha, AgreesWithTheScalesOfTheRecipe) {
  const ExpertWeights w = testing::quant_experts(nvfp4(7, 128, 64));
  const Alphas a = resolve_alphas(w);
  const LayerInputScales scales = layer_input_scales(Recipe::nvfp4_w4a4_cutedsl, w.input_scales);
  EXPECT_EQ(a.input_quant, 1.0f / scales.gemm1);
  EXPECT_EQ(a.intermediate_quant, 1.0f / scales.gemm2);
  for (std::size_t e = 0; e < 7; ++e) {
    EXPECT_NEAR(a.up[e], scales.gemm1 * w.up[e].tensor_scale, 0x1p-22f * a.up[e]);
    EXPECT_NEAR(a.gate[e], scales.gemm1 * w.gate[e].tensor_scale, 0x1p-22f * a.gate[e]);
    EXPECT_NEAR(a.down[e], scales.gemm2 * w.down[e].tensor_scale, 0x1p-22f * a.down[e]);
  }
}

TEST(Alpha, DoesNotDependOnTheSplit) {
  const ExpertWeights all = testing::quant_experts(nvfp4(8, 128, 64));
  const Alphas whole = resolve_alphas(all);
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    const Alphas part = resolve_alphas(testing::slice_experts(all, rank * 2, 2));
    EXPECT_EQ(part.input_quant, whole.input_quant);
    EXPECT_EQ(part.intermediate_quant, whole.intermediate_quant);
    EXPECT_EQ(part.gate[1], whole.gate[static_cast<std::size_t>(rank * 2 + 1)]);
  }
}

TEST(Alpha, WithoutActivationScalesIsTheWeightScaleAndWarns) {
  ExpertWeights w = testing::quant_experts(nvfp4(1, 128, 64));
  w.input_scales = {};
  const Alphas a = resolve_alphas(w);
  EXPECT_EQ(a.input_quant, 1.0f);
  EXPECT_EQ(a.up[0], w.up[0].tensor_scale);
  EXPECT_EQ(a.warnings.size(), 2u);
}

}  // namespace
}  // namespace sluice::layout
