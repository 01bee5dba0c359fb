// Dense projections of every instruction set against float64, and bit for bit against the
// accumulation written out in plain C++.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "cpu/gemm_harness.h"
#include "moe/recipe.h"
#include "moe/reference_stages.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using testing::LinearCase;
using testing::Matrix;
using testing::random_matrix;
using testing::run_linear;

struct Operands {
  DType compute = DType::bf16;
  DType weight = DType::bf16;
};

// The order in which a unit adds the two products of a k pair.
enum class Order { ascending, odd_first };

// The accumulation written out: one chain of fused multiply-adds a segment, segments added in ascending order. Products
// of two bf16 fit f32, so that for them separate multiplications and additions give the same.
float segmented_fma(const float* x, const float* w, std::int64_t k, Order order) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < k; begin += kSegmentK) {
    const std::int64_t end = std::min<std::int64_t>(begin + kSegmentK, k);
    float chain = 0.0f;
    for (std::int64_t c = begin; c < end; c += 2) {
      const bool pair = c + 1 < end;
      if (pair && order == Order::odd_first) chain = std::fma(x[c + 1], w[c + 1], chain);
      chain = std::fma(x[c], w[c], chain);
      if (pair && order == Order::ascending) chain = std::fma(x[c + 1], w[c + 1], chain);
    }
    total += chain;
  }
  return total;
}

// The bits that a unit must give.
float defined_bits(Isa isa, const Operands& o, const float* x, const float* w, std::int64_t k) {
  if (isa == Isa::scalar) return reference::segmented_dot(x, w, k, kSegmentK);
  const bool dot = isa == Isa::avx512_bf16 && o.compute == DType::bf16;
  return segmented_fma(x, w, k, dot ? Order::odd_first : Order::ascending);
}

struct Exact {
  double value = 0.0;
  double sum_abs = 0.0;
};

Exact exact_dot(const float* x, const float* w, std::int64_t k) {
  Exact e;
  for (std::int64_t c = 0; c < k; ++c) {
    const double p = static_cast<double>(x[c]) * static_cast<double>(w[c]);
    e.value += p;
    e.sum_abs += std::fabs(p);
  }
  return e;
}

class Linear : public ::testing::TestWithParam<Isa> {
 protected:
  void check(const Operands& o, std::int64_t rows, std::int64_t n, std::int64_t k) {
    SCOPED_TRACE("T " + std::to_string(rows) + " N " + std::to_string(n) + " K " + std::to_string(k) + " compute " +
                 std::string(dtype_name(o.compute)) + " weight " + std::string(dtype_name(o.weight)));
    const Matrix x = random_matrix(rows, k, o.compute, 11 + k);
    Matrix w = random_matrix(n, k, o.weight, 12 + n);
    const auto dense = make_dense(w.weight(), o.compute == DType::f32 ? Recipe::f32 : Recipe::bf16, pool_);
    if (o.compute == DType::bf16) {
      for (float& v : w.values) v = round_to_bf16(v);
    }
    const std::vector<float> y = run_linear(GetParam(), pool_, *dense, x.view());
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t i = 0; i < n; ++i) check_output(o, x.row(t), w.row(i), k, y[t * n + i]);
    }
  }

  void check_output(const Operands& o, const float* x, const float* w, std::int64_t k, float got) {
    const Exact exact = exact_dot(x, w, k);
    const tolerance::DotOrder order{k, kSegmentK, DType::f32, o.compute == DType::bf16};
    ASSERT_NEAR(got, exact.value, tolerance::dot_bound(order, exact.sum_abs));
    ASSERT_EQ(got, defined_bits(GetParam(), o, x, w, k));
  }

  ThreadPool pool_{2};
};

constexpr Operands kAllOperands[] = {
    {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::bf16}, {DType::f32, DType::f32}};

TEST_P(Linear, EveryBlockSize) {
  for (const Operands& o : kAllOperands) {
    for (std::int64_t rows = 1; rows <= 2 * kBlockTokens + 1; ++rows) check(o, rows, 33, 300);
  }
}

TEST_P(Linear, OddSizes) {
  for (const Operands& o : kAllOperands) {
    for (const std::int64_t k : {1, 2, 3, 17, 31, 255, 256, 257, 511, 513}) {
      for (const std::int64_t n : {1, 15, 16, 17, 100}) check(o, 5, n, k);
    }
  }
}

TEST_P(Linear, ModelSizes) {
  for (const Operands& o : kAllOperands) {
    for (const std::int64_t k : {768, 2048, 2880, 7168}) check(o, 14, 40, k);
  }
}

TEST_P(Linear, MoreRowsThanAChunk) { check({DType::bf16, DType::bf16}, 2 * kChunkRows + 5, 17, 520); }

// Each step of the epilogue rounds once, in f32: total, + bias, + what was there, to bf16.
TEST_P(Linear, BiasAccumulateAndRounding) {
  const Matrix x = random_matrix(7, 100, DType::bf16, 1), w = random_matrix(37, 100, DType::bf16, 2);
  const Matrix bias = random_matrix(1, 37, DType::f32, 3), before = random_matrix(7, 37, DType::f32, 4);
  const auto dense = make_dense(w.weight(), Recipe::bf16, pool_);
  const std::vector<float> plain = run_linear(GetParam(), pool_, *dense, x.view());
  const std::vector<float> biased = run_linear(GetParam(), pool_, *dense, x.view(), {DType::f32, bias.values.data()});
  const std::vector<float> added =
      run_linear(GetParam(), pool_, *dense, x.view(), {DType::f32, bias.values.data(), &before.values});
  const std::vector<float> rounded = run_linear(GetParam(), pool_, *dense, x.view(), {DType::bf16});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(biased[i], plain[i] + bias.values[i % 37]);
    EXPECT_EQ(added[i], before.values[i] + biased[i]);
    EXPECT_EQ(rounded[i], round_to_bf16(plain[i]));
  }
}

// Rows of x and y that lie further apart than they are long; nothing is written between them.
TEST_P(Linear, StridedViews) {
  const std::int64_t rows = 3, k = 40, n = 20, x_stride = 47, y_stride = 33;
  const Matrix x = random_matrix(rows, k, DType::bf16, 5), w = random_matrix(n, k, DType::bf16, 6);
  const auto dense = make_dense(w.weight(), Recipe::bf16, pool_);
  std::vector<Bf16> spread(static_cast<std::size_t>(rows * x_stride), Bf16{0x7FC0});
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t c = 0; c < k; ++c) spread[t * x_stride + c] = to_bf16(x.row(t)[c]);
  }
  std::vector<float> y(static_cast<std::size_t>(rows * y_stride), -123.0f);
  const Buffer scratch = host_buffer(linear_workspace_bytes(rows, k));
  Workspace workspace(scratch.data(), scratch.bytes());
  LinearArgs args;
  args.x = {spread.data(), DType::bf16, rows, k, x_stride};
  args.weight = dense.get();
  args.y = {y.data(), DType::f32, rows, n, y_stride};
  linear(gemm_kernels(GetParam()), pool_, args, workspace);
  const std::vector<float> packed = run_linear(GetParam(), pool_, *dense, x.view());
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < y_stride; ++i) EXPECT_EQ(y[t * y_stride + i], i < n ? packed[t * n + i] : -123.0f);
  }
}

TEST_P(Linear, NoRows) {
  const Matrix w = random_matrix(5, 7, DType::bf16, 2);
  const auto dense = make_dense(w.weight(), Recipe::bf16, pool_);
  EXPECT_TRUE(run_linear(GetParam(), pool_, *dense, dense_view(w.storage.data(), DType::bf16, 0, 7)).empty());
}

// A row's bits depend on nothing but the row: alone, at any place in batches that cross every block and chunk size, for
// any number of threads.
TEST_P(Linear, RowInvariant) {
  for (const Operands& o : kAllOperands) {
    for (const std::int64_t k : {768, 2048, 2880, 7168}) {
      const std::int64_t most = 300, n = 35;
      const Matrix x = random_matrix(most, k, o.compute, 21), w = random_matrix(n, k, o.weight, 22);
      const auto dense = make_dense(w.weight(), o.compute == DType::f32 ? Recipe::f32 : Recipe::bf16, pool_);
      const std::vector<float> whole = run_linear(GetParam(), pool_, *dense, x.view());
      for (const std::int64_t rows : {1, 2, 3, 8, 33, 64, 97}) {
        for (const int threads : {1, 5}) {
          ThreadPool pool(threads);
          const std::int64_t first = most - rows - (rows * 7) % 31;
          ConstTensorView part = x.view();
          part.data = x.storage.data() + dtype_bytes(o.compute, first * k);
          part.rows = rows;
          const std::vector<float> y = run_linear(GetParam(), pool, *dense, part);
          ASSERT_EQ(y, std::vector<float>(whole.begin() + first * n, whole.begin() + (first + rows) * n))
              << rows << " rows, K " << k << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST_P(Linear, NanStaysInItsRow) {
  Matrix x = random_matrix(30, 300, DType::bf16, 1);
  const Matrix w = random_matrix(33, 300, DType::bf16, 2);
  const auto dense = make_dense(w.weight(), Recipe::bf16, pool_);
  const std::vector<float> clean = run_linear(GetParam(), pool_, *dense, x.view());
  reinterpret_cast<Bf16*>(x.storage.data())[17 * 300 + 299] = Bf16{0x7FC0};
  const std::vector<float> dirty = run_linear(GetParam(), pool_, *dense, x.view());
  for (std::size_t i = 0; i < clean.size(); ++i) {
    if (i / 33 == 17) {
      EXPECT_TRUE(std::isnan(dirty[i]));
    } else {
      EXPECT_EQ(dirty[i], clean[i]);
    }
  }
}

TEST_P(Linear, RefusesWhatDoesNotFit) {
  const Matrix x = random_matrix(2, 8, DType::bf16, 1), w = random_matrix(3, 9, DType::bf16, 2);
  const auto dense = make_dense(w.weight(), Recipe::bf16, pool_);
  EXPECT_THROW(run_linear(GetParam(), pool_, *dense, x.view()), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, Linear, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

}  // namespace
}  // namespace sluice::cpu
