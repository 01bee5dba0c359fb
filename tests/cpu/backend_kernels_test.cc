// The vector loops that the operations are made of: exponential, conversions, search. Through the kernel table, so that
// every instruction set is covered.
#include <cmath>

#include "backend_fixture.h"
#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class KernelsTest : public testing::TestWithParam<Isa> {
 protected:
  const OpsKernels& kernels_ = ops_kernels(GetParam());

  // e^x as the softmax and the sampler see it.
  std::vector<float> exponentials(const std::vector<float>& x) {
    std::vector<float> y = poisoned_floats(x.size());
    kernels_.weights({.x = x.data(), .n = static_cast<std::int64_t>(x.size()), .cut = -kInf}, y.data());
    return y;
  }
};

TEST_P(KernelsTest, ExponentialWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00137f) x.push_back(v);
  const std::vector<float> y = exponentials(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, 2 * exact * 0x1p-23) << x[i];
  }
}

TEST_P(KernelsTest, ExponentialAtTheEnds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = exponentials({0.0f, -0.0f, -kInf, -105.0f, -1e30f, 89.0f, 1e30f, kInf, nan, 88.72f});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  for (int i = 2; i < 5; ++i) EXPECT_EQ(y[i], 0.0f) << i;
  for (int i = 5; i < 8; ++i) EXPECT_EQ(y[i], kInf) << i;
  EXPECT_TRUE(std::isnan(y[8]));
  EXPECT_NEAR(y[9], std::exp(static_cast<double>(88.72f)), 2 * 0x1p104);  // 2 ulp, close to the largest float
  for (float v = -103.0f; v < -87.0f; v += 0.37f) {                       // results that are subnormal numbers
    EXPECT_NEAR(exponentials({v})[0], std::exp(static_cast<double>(v)), 0x1p-149) << v;
  }
}

// All upper halves with lower halves on both sides of a tie and at it.
TEST_P(KernelsTest, NarrowRoundsAsTheReference) {
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  x.push_back(1.0f);  // the last vector is a partial one
  std::vector<std::uint16_t> y(x.size());
  kernels_.narrow(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], to_bf16(x[i]).bits) << std::bit_cast<std::uint32_t>(x[i]);
}

TEST_P(KernelsTest, WidenIsExact) {
  std::vector<std::uint16_t> x(65536 + 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  std::vector<float> y = poisoned_floats(x.size());
  kernels_.widen(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::uint32_t{x[i]} << 16);
}

TEST_P(KernelsTest, PartialVectorsStayInBounds) {
  const std::vector<float> x = normal_floats(40, 1);
  for (std::int64_t n = 0; n < 40; ++n) {
    std::vector<float> sum(41, 7.0f);
    kernels_.add(sum.data(), x.data(), n);
    std::vector<std::uint16_t> narrow(41, 0x4242);
    kernels_.narrow(x.data(), narrow.data(), n);
    for (std::int64_t i = 0; i < 41; ++i) {
      EXPECT_EQ(sum[i], i < n ? 7.0f + x[i] : 7.0f);
      EXPECT_EQ(narrow[i], i < n ? to_bf16(x[i]).bits : 0x4242);
    }
  }
}

TEST_P(KernelsTest, MaximumSeesEveryElement) {
  for (const std::int64_t n : {1, 15, 16, 17, 100}) {
    std::vector<float> x(static_cast<std::size_t>(n), -3.0f);
    EXPECT_EQ(kernels_.max_or_nan(x.data(), n), -3.0f);  // also where a padded lane would hold zero
    for (std::int64_t i = 0; i < n; ++i) {
      x[i] = 2.0f;
      EXPECT_EQ(kernels_.max_or_nan(x.data(), n), 2.0f) << i;
      EXPECT_EQ(kernels_.find(x.data(), n, 2.0f), i);
      x[i] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(kernels_.max_or_nan(x.data(), n))) << i;
      x[i] = -3.0f;
    }
    EXPECT_EQ(kernels_.find(x.data(), n, 0.0f), n);
  }
  EXPECT_EQ(kernels_.max_or_nan(nullptr, 0), -kInf);
}

TEST_P(KernelsTest, WeightsHonourBothLimits) {
  const std::vector<float> x{0, -1, -2, -3, -4, -5, -1, 0, -2, -7, -1, -1, -1, -1, -1, -1, -2.5f, 0};
  WeightRow row{.x = x.data(), .n = 18, .inverse_temperature = 2.0f, .cut = -2.0f, .min_weight = 0.1f};  // e^-2 = 0.135
  std::vector<float> y = poisoned_floats(18);
  kernels_.weights(row, y.data());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = x[i] >= -1.0f ? std::exp(2.0 * x[i]) : 0.0;  // -2 passes the cut, but e^-4 is too small
    EXPECT_NEAR(y[i], expected, 1e-6) << i;
    sum += expected;
  }
  EXPECT_NEAR(kernels_.weight_sum(row), sum, 1e-5);
  row.min_weight = 0;
  kernels_.weights(row, y.data());
  EXPECT_NEAR(y[2], std::exp(-4.0), 1e-6);  // at the cut: kept
  EXPECT_EQ(y[16], 0.0f);
}

TEST_P(KernelsTest, GatherKeepsOrderIdsAndWeights) {
  std::vector<float> x = normal_floats(83, 3);
  x[7] = 0.5f;  // exactly at the cut
  std::vector<Candidate> found(x.size());
  const std::int64_t count =
      kernels_.gather({.x = x.data(), .n = 83, .max = 3.0f, .inverse_temperature = 0.5f, .cut = 0.5f}, found.data());
  std::int64_t at = 0;
  for (std::int32_t i = 0; i < 83; ++i) {
    if (x[i] < 0.5f) continue;
    ASSERT_LT(at, count);
    EXPECT_EQ(found[at].id, i);
    EXPECT_NEAR(found[at].weight, std::exp(0.5 * (x[i] - 3.0)), 1e-6);
    EXPECT_EQ(found[at++].value, x[i]);
  }
  EXPECT_EQ(at, count);
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
