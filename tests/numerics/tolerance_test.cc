// The bounds hold for real sums, and real faults exceed them. Sums are compared with float64.
#include "numerics/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

namespace sluice::tolerance {
namespace {

const std::int64_t kLengths[] = {768, 2048, 2880, 7168};
constexpr std::int64_t kSegment = 128;

struct Operands {
  std::vector<float> a, b;  // [K], values of bf16

  double exact() const {
    double sum = 0.0;
    for (std::size_t c = 0; c < a.size(); ++c) sum += static_cast<double>(a[c]) * b[c];
    return sum;
  }
  double sum_abs() const {
    double sum = 0.0;
    for (std::size_t c = 0; c < a.size(); ++c) sum += std::fabs(static_cast<double>(a[c]) * b[c]);
    return sum;
  }
};

Operands random_operands(std::int64_t length, std::uint32_t seed, float mean = 0.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, 1.0f);
  Operands out;
  for (std::int64_t c = 0; c < length; ++c) {
    out.a.push_back(round_to_bf16(normal(generator)));
    out.b.push_back(round_to_bf16(normal(generator)));
  }
  return out;
}

float round_to(DType type, float v) { return type == DType::bf16 ? round_to_bf16(v) : v; }

// The sum as DotOrder describes it, in float32 or with every result rounded to bf16.
float dot(const Operands& x, const DotOrder& order) {
  const std::int64_t segment = order.segment > 0 ? order.segment : order.length;
  float total = 0.0f;
  for (std::int64_t first = 0; first < order.length; first += segment) {
    float chain = 0.0f;
    for (std::int64_t c = first; c < std::min(first + segment, order.length); ++c) {
      chain = round_to(order.accumulator, chain + round_to(order.accumulator, x.a[c] * x.b[c]));
    }
    total = round_to(order.accumulator, total + chain);
  }
  return total;
}

TEST(Rounding, UnitRoundoffIsReachedButNotExceeded) {
  const auto largest_relative_error = [](auto round) {
    double largest = 0.0;
    for (int i = 0; i < 4096; ++i) {
      const float v = 1.0f + static_cast<float>(i) / 4096.0f;
      largest = std::max(largest, std::fabs(round(v) - static_cast<double>(v)) / v);
    }
    return largest;
  };
  const auto check = [&](DType type, auto round) {
    const double u = unit_roundoff(type);
    const double largest = largest_relative_error(round);
    EXPECT_LE(largest, u);
    EXPECT_GT(largest, 0.75 * u);  // the error of the first tie is u / (1 + u)
  };
  check(DType::bf16, round_to_bf16);
  check(DType::f16, round_to_fp16);
  check(DType::e4m3, [](float v) { return to_float(to_e4m3(v)); });
  check(DType::e5m2, [](float v) { return to_float(to_e5m2(v)); });
  check(DType::e2m1, [](float v) { return to_float(to_e2m1(v)); });
  const double f32_tie = 1.0 + unit_roundoff(DType::f32);
  EXPECT_EQ(static_cast<float>(f32_tie), 1.0f);
  EXPECT_GT(static_cast<float>(std::nextafter(f32_tie, 2.0)), 1.0f);
}

TEST(Rounding, BoundCoversSubnormals) {
  // e4m3 has the step 2^-9 near zero: the tie 2^-10 is off by all of the bound, although its relative error is 1.
  EXPECT_EQ(rounding_bound(0x1p-10, DType::e4m3), 0x1p-10);
  EXPECT_EQ(to_float(to_e4m3(0x1p-10f)), 0.0f);
  EXPECT_EQ(rounding_bound(100.0, DType::e4m3), 6.25);
  EXPECT_EQ(rounding_bound(0.25, DType::e2m1), 0.25);
  EXPECT_EQ(rounding_bound(-256.0, DType::bf16), 1.0);
}

TEST(Order, DepthCountsTheLongestChainOfRoundings) {
  EXPECT_EQ(rounding_depth({.length = 768}), 767);
  EXPECT_EQ(rounding_depth({.length = 768, .segment = 256}), 255 + 2);
  EXPECT_EQ(rounding_depth({.length = 7168, .segment = 128}), 127 + 55);
  EXPECT_EQ(rounding_depth({.length = 2880, .segment = 128}), 127 + 22);  // 22 whole segments and one of 64
  EXPECT_EQ(rounding_depth({.length = 100, .segment = 128}), 99);
  EXPECT_EQ(rounding_depth({.length = 100, .segment = 10, .exact_products = false}), 9 + 9 + 1);
  EXPECT_EQ(rounding_depth({.length = 1}), 0);
  EXPECT_EQ(rounding_depth({.length = 0}), 0);
}

TEST(Order, GammaGrowsAndEnds) {
  EXPECT_EQ(gamma(0, 0x1p-8), 0.0);
  EXPECT_DOUBLE_EQ(gamma(64, 0x1p-8), 0.25 / 0.75);
  EXPECT_EQ(gamma(256, 0x1p-8), INFINITY);
}

TEST(Dot, BoundsHoldForRandomAndForBiasedOperands) {
  for (const std::int64_t length : kLengths) {
    for (const std::int64_t segment : {std::int64_t{0}, kSegment, std::int64_t{512}}) {
      const DotOrder order{.length = length, .segment = segment};
      for (std::uint32_t seed = 0; seed < 40; ++seed) {
        const Operands x = random_operands(length, seed, seed % 2 == 0 ? 0.0f : 0.5f);
        const double error = std::fabs(dot(x, order) - x.exact());
        EXPECT_LE(error, dot_bound(order, x.sum_abs())) << length << " " << segment << " " << seed;
        EXPECT_LE(error, dot_bound_statistical(order, x.sum_abs())) << length << " " << segment << " " << seed;
      }
    }
  }
}

TEST(Dot, WorstCaseIsReachableWithinAFactor) {
  // 1, then K - 1 products of u: each is lost in the tie, so the error is (K - 1) u of a bound of (K - 1) u sum.
  const std::int64_t length = 2048;
  Operands x;
  x.a.assign(length, 0x1p-12f);
  x.b.assign(length, 0x1p-12f);
  x.a[0] = x.b[0] = 1.0f;
  const DotOrder order{.length = length};
  const double error = std::fabs(dot(x, order) - x.exact());
  EXPECT_LE(error, dot_bound(order, x.sum_abs()));
  EXPECT_GT(error, 0.99 * dot_bound(order, x.sum_abs()));
}

TEST(Dot, Bf16AccumulationHasItsOwnBound) {
  const DotOrder order{.length = 64, .accumulator = DType::bf16, .exact_products = false};
  int beyond_f32 = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const Operands x = random_operands(order.length, seed);
    const double error = std::fabs(dot(x, order) - x.exact());
    EXPECT_LE(error, dot_bound(order, x.sum_abs()));
    EXPECT_LE(error, dot_bound_statistical(order, x.sum_abs()));
    beyond_f32 += error > dot_bound({.length = order.length}, x.sum_abs());
  }
  EXPECT_EQ(beyond_f32, 40);  // the float32 bound notices an accumulator of too few bits
}

TEST(Dot, UnderflowIsCovered) {
  Operands x;
  x.a.assign(64, 0x1p-100f);
  x.b.assign(64, 0x1p-60f);
  const DotOrder order{.length = 64};
  EXPECT_EQ(dot(x, order), 0.0f);
  EXPECT_LE(x.exact(), dot_bound(order, x.sum_abs()));
}

// Position of the product whose magnitude is nearest to the mean.
std::size_t typical_product(const Operands& x) {
  const double mean = x.sum_abs() / static_cast<double>(x.a.size());
  const auto distance = [&](std::size_t c) {
    return std::fabs(std::fabs(static_cast<double>(x.a[c]) * x.b[c]) - mean);
  };
  std::size_t best = 0;
  for (std::size_t c = 1; c < x.a.size(); ++c) {
    if (distance(c) < distance(best)) best = c;
  }
  return best;
}

TEST(Dot, ADroppedProductExceedsTheSharpBounds) {
  for (const std::int64_t length : kLengths) {
    const DotOrder segmented{.length = length, .segment = kSegment};
    const DotOrder any{.length = length};
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
      const Operands x = random_operands(length, seed);
      Operands faulty = x;
      faulty.a[typical_product(x)] = 0.0f;
      const double error = std::fabs(dot(faulty, segmented) - x.exact());
      EXPECT_GT(error, dot_bound(segmented, x.sum_abs())) << length << " " << seed;
      EXPECT_GT(error, dot_bound_statistical(segmented, x.sum_abs())) << length << " " << seed;
      EXPECT_GT(error, dot_bound_statistical(any, x.sum_abs())) << length << " " << seed;
      // What the header says of the worst case over one chain: sharp for short sums, blind beyond K = 4096.
      EXPECT_EQ(error > dot_bound(any, x.sum_abs()), length < 4096) << length << " " << seed;
    }
  }
}

TEST(Dot, SwappedOperandsExceedTheSharpBounds) {
  std::mt19937 generator(99);
  for (const std::int64_t length : kLengths) {
    const DotOrder order{.length = length, .segment = kSegment};
    const Operands x = random_operands(length, 5);
    int found = 0;
    for (int fault = 0; fault < 100; ++fault) {
      Operands faulty = x;
      const std::size_t first = generator() % (x.a.size() - 1);
      std::swap(faulty.b[first], faulty.b[first + 1]);
      found += std::fabs(dot(faulty, order) - x.exact()) > dot_bound_statistical(order, x.sum_abs());
    }
    EXPECT_GE(found, 85) << length;  // the rest swaps operands that are nearly equal
  }
}

struct Product {
  double norm_a = 0.0, norm_b = 0.0, norm_c = 0.0, error = 0.0;
  double relative_error() const { return std::sqrt(error) / std::sqrt(norm_c); }
};

// C [T, N] = A [T, K] B [K, N] with random operands; `fault` edits the operands that the computed one sees.
template <class Fault>
Product multiply(const DotOrder& order, Fault fault) {
  Product out;
  for (std::uint32_t cell = 0; cell < 64; ++cell) {
    const Operands x = random_operands(order.length, 1000 + cell);
    Operands seen = x;
    fault(cell, seen);
    const double exact = x.exact();
    out.error += std::pow(dot(seen, order) - exact, 2);
    out.norm_c += exact * exact;
    for (const float v : x.a) out.norm_a += static_cast<double>(v) * v;
    for (const float v : x.b) out.norm_b += static_cast<double>(v) * v;
  }
  return out;
}

TEST(Matmul, RelativeL2BoundsHoldAndFaultsExceedThem) {
  for (const std::int64_t length : kLengths) {
    const DotOrder order{.length = length, .segment = kSegment};
    const auto bound = [&](const Product& p) {
      return matmul_relative_l2_bound(order, std::sqrt(p.norm_a), std::sqrt(p.norm_b), std::sqrt(p.norm_c));
    };
    const auto statistical = [&](const Product& p) {
      return matmul_relative_l2_bound_statistical(order, std::sqrt(p.norm_a), std::sqrt(p.norm_b), std::sqrt(p.norm_c));
    };
    const Product good = multiply(order, [](std::uint32_t, Operands&) {});
    EXPECT_LE(good.relative_error(), bound(good)) << length;
    EXPECT_LE(good.relative_error(), statistical(good)) << length;
    const Product dropped = multiply(order, [](std::uint32_t, Operands& x) { x.a.back() = 0.0f; });
    EXPECT_GT(dropped.relative_error(), statistical(dropped)) << length;
    const Product one_wrong_row = multiply(order, [](std::uint32_t cell, Operands& x) {
      if (cell == 7) std::reverse(x.b.begin(), x.b.end());
    });
    EXPECT_GT(one_wrong_row.relative_error(), bound(one_wrong_row)) << length;
  }
}

TEST(Compound, RelativeErrorsMultiply) {
  EXPECT_EQ(compound({}), 0.0);
  EXPECT_DOUBLE_EQ(compound({0.5, 1.0}), 2.0);
  // A float32 result stored in bf16 and decoded through an e4m3 operand.
  const double both = compound({unit_roundoff(DType::bf16), unit_roundoff(DType::e4m3)});
  for (int i = 0; i < 2000; ++i) {
    const float v = 1.0f + static_cast<float>(i) / 1000.0f;
    EXPECT_LE(std::fabs(to_float(to_e4m3(round_to_bf16(v))) - v), both * v);
  }
}

TEST(Ties, OnlyValuesWithinTheBoundAreUncertain) {
  EXPECT_TRUE(may_round_either_way(2.5, 1e-6, to_e2m1));
  EXPECT_TRUE(may_round_either_way(2.5 + 5e-7, 1e-6, to_e2m1));
  EXPECT_TRUE(may_round_either_way(2.5 - 5e-7, 1e-6, to_e2m1));
  EXPECT_FALSE(may_round_either_way(2.5 + 1e-5, 1e-6, to_e2m1));
  EXPECT_TRUE(may_round_either_way(1.0625, 1e-6, to_e4m3));
  EXPECT_FALSE(may_round_either_way(1.0, 0.03, to_e4m3));
}

}  // namespace
}  // namespace sluice::tolerance
