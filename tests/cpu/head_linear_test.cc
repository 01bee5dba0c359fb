// Projections with one weight a head: against float64, against linear() bit for bit, and what they refuse.
#include "cpu/head_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend_fixture.h"
#include "core/error.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

struct Shape {
  std::int64_t tokens, heads, outputs, inputs, tail;
  DType compute;
};

QuantTensor weight_view(const std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  QuantTensor w;
  w.codes = {values.data(), DType::f32, rows, cols, cols, 1};
  return w;
}

class HeadLinearTest : public BackendTest {
 protected:
  struct Result {
    std::vector<float> x, y;
    std::vector<std::vector<float>> weights;
  };

  Result run(const Shape& s, std::int64_t tokens_of_x = 0) {
    Result r;
    const std::int64_t most = std::max(tokens_of_x, s.tokens);
    r.x = normal_floats(static_cast<std::size_t>(most * s.heads * (s.inputs + s.tail)), 5);
    std::vector<QuantTensor> views;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      r.weights.push_back(normal_floats(static_cast<std::size_t>(s.outputs * s.inputs), 50 + static_cast<unsigned>(h)));
    }
    for (const std::vector<float>& w : r.weights) views.push_back(weight_view(w, s.outputs, s.inputs));
    const std::unique_ptr<DenseWeight> weight = backend_.prepare_heads(views, s.compute);
    r.y = poisoned_floats(static_cast<std::size_t>(s.tokens * s.heads * (s.outputs + s.tail)));
    HeadLinearArgs args;
    args.x = view(r.x, most, s.heads * (s.inputs + s.tail));
    args.x.rows = s.tokens;
    args.weight = weight.get();
    args.y = view(r.y, s.tokens, s.heads * (s.outputs + s.tail));
    args.tail = s.tail;
    Workspace workspace = memory_.get(backend_, s.tokens, 0, s.inputs);
    backend_.head_linear(args, workspace, kStream);
    return r;
  }

  void check(const Shape& s) {
    const Result r = run(s);
    const auto rounded = [&](float v) { return s.compute == DType::bf16 ? round_to_bf16(v) : v; };
    const tolerance::DotOrder order{.length = s.inputs, .exact_products = s.compute == DType::bf16};
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const float* x = r.x.data() + (t * s.heads + h) * (s.inputs + s.tail);
        const float* y = r.y.data() + (t * s.heads + h) * (s.outputs + s.tail);
        for (std::int64_t n = 0; n < s.outputs; ++n) {
          const float* w = r.weights[static_cast<std::size_t>(h)].data() + n * s.inputs;
          double sum = 0.0;
          double absolute = 0.0;
          for (std::int64_t k = 0; k < s.inputs; ++k) {
            const double product = static_cast<double>(rounded(x[k])) * rounded(w[k]);
            sum += product;
            absolute += std::fabs(product);
          }
          ASSERT_NEAR(y[n], sum, tolerance::dot_bound(order, absolute)) << "t " << t << " h " << h << " n " << n;
        }
        for (std::int64_t c = 0; c < s.tail; ++c) ASSERT_EQ(y[s.outputs + c], x[s.inputs + c]) << "tail " << c;
      }
    }
  }

  PoisonedMemory memory_;
};

TEST_P(HeadLinearTest, AgainstFloat64) {
  for (const DType compute : {DType::bf16, DType::f32}) {
    check({1, 1, 32, 16, 0, compute});
    check({1, 3, 56, 24, 16, compute});
    check({5, 2, 33, 17, 6, compute});     // neither whole panels nor an even number of inputs
    check({100, 2, 20, 300, 0, compute});  // more than one chunk of tokens, more than one segment of inputs
    check({13, 5, 1, 1, 1, compute});
  }
}

TEST_P(HeadLinearTest, RowsDoNotDependOnTheBatch) {
  for (const DType compute : {DType::bf16, DType::f32}) {
    const std::vector<float> whole = run({150, 3, 40, 520, 8, compute}).y;
    for (const std::int64_t tokens : {1, 7, 97}) {
      const std::vector<float> part = run({tokens, 3, 40, 520, 8, compute}, 150).y;
      EXPECT_EQ(bits_of(part), bits_of(std::vector<float>(whole.begin(), whole.begin() + std::ssize(part)))) << tokens;
    }
  }
}

// A transposed view is how the key rows of kv_b come.
TEST_P(HeadLinearTest, TransposedWeight) {
  const std::vector<float> stored{1, 2, 3, 4, 5, 6};  // [2, 3]
  QuantTensor w;
  w.codes = {stored.data(), DType::f32, 3, 2, 1, 3};
  const std::unique_ptr<DenseWeight> weight = backend_.prepare_heads({w}, DType::f32);
  std::vector<float> x{1, 10};
  std::vector<float> y = poisoned_floats(3);
  Workspace workspace = memory_.get(backend_, 1, 0, 2);
  backend_.head_linear({view(x, 1, 2), weight.get(), view(y, 1, 3), 0}, workspace, kStream);
  EXPECT_EQ(y, (std::vector<float>{41, 52, 63}));
}

TEST_P(HeadLinearTest, RefusesWhatDoesNotFit) {
  const std::vector<float> values(12, 1.0f);
  EXPECT_THROW(backend_.prepare_heads({}, DType::bf16), Error);
  EXPECT_THROW(backend_.prepare_heads({weight_view(values, 2, 3)}, DType::f16), Error);
  EXPECT_THROW(backend_.prepare_heads({weight_view(values, 2, 3), weight_view(values, 3, 2)}, DType::bf16), Error);
  const std::unique_ptr<DenseWeight> weight =
      backend_.prepare_heads({weight_view(values, 2, 3), weight_view(values, 2, 3)}, DType::bf16);
  std::vector<float> x(8);
  std::vector<float> y(8);
  std::vector<std::uint16_t> y_bf16(8);
  Workspace workspace = memory_.get(backend_, 1, 0, 8);
  const auto call = [&](std::int64_t inputs, std::int64_t outputs, std::int64_t tail) {
    backend_.head_linear({view(x, 1, inputs), weight.get(), view(y, 1, outputs), tail}, workspace, kStream);
  };
  EXPECT_NO_THROW(call(6, 4, 0));
  EXPECT_NO_THROW(call(8, 6, 1));
  EXPECT_THROW(call(7, 4, 0), Error);
  EXPECT_THROW(call(6, 5, 0), Error);
  EXPECT_THROW(call(6, 6, 1), Error);
  EXPECT_THROW(backend_.head_linear({view(x, 1, 8), weight.get(), view(y_bf16, 1, 6), 1}, workspace, kStream), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, HeadLinearTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
