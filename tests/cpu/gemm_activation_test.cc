// Activations and roundings of every instruction set, against float64 and against numerics/bf16.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/gemm_activation_oracle.h"
#include "cpu/gemm_harness.h"
#include "cpu/runner_experts.h"

namespace sluice::cpu {
namespace {

using testing::bound;
using testing::expected;

constexpr float kInf = std::numeric_limits<float>::infinity();

class Activations : public ::testing::TestWithParam<Isa> {
 protected:
  float apply(const ActivationSpec& spec, float gate, float up) const {
    float out = 0.0f;
    run(spec, &gate, &up, 1, &out);
    return out;
  }
  void run(const ActivationSpec& spec, const float* gate, const float* up, std::int64_t count, float* out) const {
    ActivateRowArgs a;
    a.numbers = activation_numbers(spec);
    a.gate = gate;
    a.up = up;
    a.count = count;
    a.to = Element::f32;
    a.out = out;
    gemm_kernels(GetParam()).activate_row(a);
  }
};

std::vector<ActivationSpec> all_specs() {
  std::vector<ActivationSpec> specs;
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::relu2); ++kind) {
    ActivationSpec s;
    s.kind = static_cast<ActivationKind>(kind);
    if (s.kind == ActivationKind::situ) s.beta = 4.0f;
    specs.push_back(s);
  }
  specs.push_back({ActivationKind::situ, 1.0f, 0.8f, 7.0f, 0.0f});
  specs.push_back({ActivationKind::swiglu_step, 1.0f, 1.0f, 3.0f, 1.0f});
  return specs;
}

TEST_P(Activations, CloseToFloat64) {
  constexpr std::int64_t kCount = 40001;
  std::vector<float> gate(kCount), up(kCount), out(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    gate[i] = static_cast<float>(i - kCount / 2) * 1e-3f;  // -20 to 20
    up[i] = static_cast<float>((i * 7919) % 2003 - 1001) * 0.013f;
  }
  for (const ActivationSpec& spec : all_specs()) {
    run(spec, gate.data(), up.data(), kCount, out.data());
    for (std::int64_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(out[i], expected(spec, gate[i], up[i]).value, bound(spec, gate[i], up[i]))
          << activation_name(spec.kind) << " of " << gate[i] << ", " << up[i];
    }
  }
}

// Wide range of magnitudes, where exp over- and underflows.
TEST_P(Activations, Extremes) {
  for (const ActivationSpec& spec : all_specs()) {
    for (const float size :
         {1e-30f, 1e-10f, 1e-4f, 0.3f, 0.9f, 0.95f, 4.0f, 50.0f, 87.0f, 89.5f, 103.0f, 1e4f, 1e15f}) {
      for (const float gate : {size, -size}) {
        EXPECT_NEAR(apply(spec, gate, 0.5f), expected(spec, gate, 0.5).value, bound(spec, gate, 0.5))
            << activation_name(spec.kind) << " of " << gate;
      }
    }
  }
}

TEST_P(Activations, SpecialValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ActivationSpec& spec : all_specs()) {
    EXPECT_TRUE(std::isnan(apply(spec, 1.0f, nan))) << activation_name(spec.kind);
    if (!is_gated(spec.kind)) continue;
    EXPECT_TRUE(std::isnan(apply(spec, nan, 1.0f))) << activation_name(spec.kind);
    EXPECT_EQ(apply(spec, 0.0f, 1.0f), 0.0f) << activation_name(spec.kind);
  }
  EXPECT_EQ(apply({ActivationKind::swiglu}, kInf, 1.0f), kInf);
  EXPECT_EQ(apply({ActivationKind::geglu_erf}, kInf, 1.0f), kInf);
  EXPECT_EQ(apply({ActivationKind::geglu_tanh}, 100.0f, 1.0f), 100.0f);
  EXPECT_EQ(apply({ActivationKind::swiglu}, 200.0f, 1.0f), 200.0f);
  EXPECT_EQ(apply({ActivationKind::swiglu}, -200.0f, 1.0f), 0.0f);
  EXPECT_EQ(apply({ActivationKind::relu2}, 0.0f, -3.0f), 0.0f);
  EXPECT_EQ(apply({ActivationKind::relu2}, 0.0f, 3.0f), 9.0f);
}

// Every lane computes the same function, and so does a row that ends within a vector.
TEST_P(Activations, IndependentOfPosition) {
  for (const ActivationSpec& spec : all_specs()) {
    std::vector<float> gate(37), up(37), out(37);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = static_cast<float>(i) * 0.37f - 6.0f;
      up[i] = 1.5f - static_cast<float>(i) * 0.11f;
    }
    run(spec, gate.data(), up.data(), 37, out.data());
    for (std::size_t i = 0; i < gate.size(); ++i) EXPECT_EQ(out[i], apply(spec, gate[i], up[i]));
  }
}

class Packing : public ::testing::TestWithParam<Isa> {};

// f32 to bf16 on all upper halves, with lower halves around every rounding decision.
TEST_P(Packing, RoundsLikeToBf16) {
  std::vector<float> in(static_cast<std::size_t>(kSegmentK));
  std::vector<Bf16> out(in.size());
  std::vector<std::uint32_t> bits;
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) bits.push_back(upper << 16 | lower);
  }
  PackArgs a;
  a.x = in.data();
  a.from = Element::f32;
  a.to = Element::bf16;
  a.tokens = 1;
  a.cols = kSegmentK;
  a.block = out.data();
  for (std::size_t begin = 0; begin + in.size() <= bits.size(); begin += in.size()) {
    std::memcpy(in.data(), bits.data() + begin, in.size() * sizeof(float));
    gemm_kernels(GetParam()).pack(a);
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i].bits, to_bf16(in[i]).bits) << std::hex << bits[begin + i];
  }
}

// Layout [segment][token][256], rows picked by number, the last column followed by zeros up to a whole record of
// weights; scaled rows are rounded once after the product.
TEST_P(Packing, LaysOutBlocks) {
  constexpr std::int64_t kCols = 259;
  const testing::Matrix x = testing::random_matrix(5, kCols, DType::bf16, 9);
  const std::int64_t rows[] = {4, 0, 3};
  const float scales[] = {0.3f, 1.7f, -0.9f};
  for (const float* scale : {static_cast<const float*>(nullptr), static_cast<const float*>(scales)}) {
    std::vector<float> block(static_cast<std::size_t>(2 * 3 * kSegmentK), -1.0f);
    PackArgs a;
    a.x = x.storage.data();
    a.row_stride = kCols;
    a.rows = rows;
    a.scale = scale;
    a.tokens = 3;
    a.cols = kCols;
    a.to = Element::f32;
    a.block = block.data();
    gemm_kernels(GetParam()).pack(a);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t c = 0; c < kCols; ++c) {
        const float v = x.row(rows[t])[c];
        const float want = scale == nullptr ? v : round_to_bf16(v * scale[t]);
        EXPECT_EQ(block[(c / kSegmentK * 3 + t) * kSegmentK + c % kSegmentK], want);
      }
      for (std::int64_t c = 3; c < kStoredK; ++c) EXPECT_EQ(block[(3 + t) * kSegmentK + c], 0.0f);
      EXPECT_EQ(block[(3 + t) * kSegmentK + kStoredK], -1.0f);
    }
  }
}

// A sum over slots is rounded after each product and each addition, in slot order, for every instruction set.
TEST_P(Packing, CombinesInSlotOrder) {
  constexpr std::int64_t kCols = 53;
  const testing::Matrix rows = testing::random_matrix(9, kCols, DType::bf16, 10);
  const float weights[] = {0.3f, -1.25f, 0.017f, 3.1f, 0.5f, 0.111f, 2.2f, 1e-3f, 0.77f};
  const void* pointers[9];
  for (int s = 0; s < 9; ++s) pointers[s] = rows.storage.data() + dtype_bytes(DType::bf16, s * kCols);
  std::vector<float> out(kCols, -1.0f);
  CombineArgs a;
  a.rows = pointers;
  a.weights = weights;
  a.slots = 9;
  a.columns = kCols;
  a.to = Element::f32;
  a.out = out.data();
  gemm_kernels(GetParam()).combine(a);
  for (std::int64_t c = 0; c < kCols; ++c) {
    float sum = 0.0f;
    for (int s = 0; s < 9; ++s) {
      const float product = weights[s] * rows.row(s)[c];
      sum += product;
    }
    EXPECT_EQ(out[c], sum);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Activations, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });
INSTANTIATE_TEST_SUITE_P(Isa, Packing, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

}  // namespace
}  // namespace sluice::cpu
