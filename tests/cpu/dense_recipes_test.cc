// Dense projections in every quantised recipe against the stages of the reference runner on the same operands.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "core/error.h"
#include "cpu/gemm_harness.h"
#include "moe/quantized_layer.h"
#include "moe/reference_stages.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using sluice::testing::FormatOptions;
using testing::Matrix;

constexpr float kStaticScale = 0.011f;

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  for (const Recipe r : sluice::testing::all_recipes()) {
    if (sluice::testing::is_quantized(r)) all.push_back(r);
  }
  return all;
}

class DenseRecipes : public ::testing::TestWithParam<std::tuple<Isa, Recipe>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  Recipe recipe() const { return std::get<1>(GetParam()); }

  QuantTensor quantize(const Matrix& plain, const FormatOptions& o = {}) {
    QuantTensor w = sluice::testing::detail::quantize_tensor(storage_, recipe(), plain.weight(), o);
    w.input_scale = uses_static_input_scales(recipe()) && o.static_input ? kStaticScale : 0.0f;
    return w;
  }

  // What the reference runner makes of it, [T, N].
  std::vector<float> expected(const QuantTensor& w, const Matrix& x) {
    const reference::RoundingPoints points = reference::rounding_points(recipe());
    const Buffer scratch = host_buffer(reference::operand_bytes(points.gemm1_input, x.rows, x.cols) + 4096);
    Workspace workspace(scratch.data(), scratch.bytes());
    const reference::OperandRows rows = reference::take_rows(points.gemm1_input, x.rows, x.cols, workspace);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      std::copy_n(x.row(t), x.cols, rows.row(t));
      reference::encode_row(rows, t, w.input_scale);
    }
    std::vector<float> y(static_cast<std::size_t>(x.rows * w.codes.rows));
    std::vector<float> row(static_cast<std::size_t>(x.cols));
    reference::Gemm g;
    g.weight = &w;
    g.weight_scale = w.tensor_scale;
    g.x = rows;
    g.y = y.data();
    g.count = x.rows;
    reference::gemm(g, points, {nullptr, row.data(), x.cols});
    return y;
  }

  void compare(const QuantTensor& w, const Matrix& x) {
    const auto dense = make_dense(w, recipe(), pool_);
    const std::vector<float> got = testing::run_linear(isa(), pool_, *dense, x.view()), want = expected(w, x);
    if (isa() != Isa::avx512_bf16) {
      ASSERT_EQ(got, want);  // the reference's own order of additions
      return;
    }
    std::vector<float> decoded(static_cast<std::size_t>(x.cols));
    for (std::int64_t n = 0; n < w.codes.rows; ++n) {
      decode_row(w, n, decoded.data());
      for (std::int64_t t = 0; t < x.rows; ++t) {
        double size = 0.0;
        for (std::int64_t c = 0; c < x.cols; ++c) size += std::fabs(static_cast<double>(x.row(t)[c]) * decoded[c]);
        // Quantised inputs are at most a quarter larger than the input.
        const double bound = 2.5 * tolerance::dot_bound({x.cols, kScaledK}, size);
        const std::int64_t i = t * w.codes.rows + n;
        ASSERT_NEAR(got[i], want[i], bound) << "row " << t << " output " << n;
      }
    }
  }

  sluice::testing::detail::FormatStorage storage_;
  ThreadPool pool_{2};
};

TEST_P(DenseRecipes, SizesAndRows) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{70, 200}, {16, 768}, {33, 2880}, {5, 34}}) {
    const QuantTensor w = quantize(testing::random_matrix(n, k, DType::f32, 5 + n));
    for (const std::int64_t rows : {1, 2, 7, 13, 100}) {
      SCOPED_TRACE("N " + std::to_string(n) + " K " + std::to_string(k) + " T " + std::to_string(rows));
      if (rows > 7 && k > 768) continue;
      compare(w, testing::random_matrix(rows, k, DType::bf16, 11 + k));
    }
  }
}

TEST_P(DenseRecipes, ChannelScalesAndDynamicInputs) {
  FormatOptions o;
  o.per_channel = true;
  o.static_input = recipe() != Recipe::fp8_tensor;
  compare(quantize(testing::random_matrix(40, 256, DType::f32, 5), o), testing::random_matrix(5, 256, DType::bf16, 3));
}

// Bytes that stay in memory: those of the format and its scales, for whole panels.
TEST_P(DenseRecipes, StaysInItsFormat) {
  const std::int64_t n = 64, k = 512;
  const auto dense = make_dense(quantize(testing::random_matrix(n, k, DType::f32, 5)), recipe(), pool_);
  const std::int64_t pairs = n / kPairRows, outputs = pairs * kPairRows * 4;
  const std::int64_t fp8 = n * k, nvfp4 = n * k * 9 / 16, mxfp4 = n * k * 17 / 32;
  const bool fp8_recipe = recipe() == Recipe::fp8_tensor || recipe() == Recipe::fp8_block;
  const bool mx = recipe() == Recipe::mxfp4_w4a16 || recipe() == Recipe::mxfp4_w4a8;
  const std::int64_t scales = recipe() == Recipe::fp8_block ? pairs * (k / 128) * 2 * 4 : outputs;
  EXPECT_EQ(dense->resident_bytes, (fp8_recipe ? fp8 : mx ? mxfp4 : nvfp4) + scales);
}

TEST_P(DenseRecipes, RefusesOtherFormats) {
  const Matrix plain = testing::random_matrix(8, 64, DType::bf16, 5);
  EXPECT_THROW(make_dense(plain.weight(), recipe(), pool_), Error);
}

INSTANTIATE_TEST_SUITE_P(All, DenseRecipes,
                         ::testing::Combine(::testing::ValuesIn(testing::available_isas()),
                                            ::testing::ValuesIn(recipes())),
                         [](const auto& p) {
                           return testing::isa_label(std::get<0>(p.param)) + "_" +
                                  sluice::testing::recipe_test_name(std::get<1>(p.param));
                         });

}  // namespace
}  // namespace sluice::cpu
