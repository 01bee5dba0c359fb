// Rotary embedding against its definition in float64, both pair layouts, whole and partial heads.
#include <cmath>

#include "backend_fixture.h"
#include "core/error.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using RopeTest = BackendTest;

struct Pair {
  std::int64_t first, second;  // columns of a head
};

Pair columns_of(std::int64_t i, std::int64_t pairs, bool interleaved) {
  return interleaved ? Pair{2 * i, 2 * i + 1} : Pair{i, i + pairs};
}

// Quarter turns: (x, y) > (-y, x) > (-x, -y).
TEST_P(RopeTest, QuarterTurns) {
  const std::unique_ptr<RopeTable> table = backend_.make_rope({1.57079633f, 0.0f}, 2.0f, 3);
  const std::vector<std::int32_t> positions{0, 1, 2};
  for (const bool interleaved : {false, true}) {
    std::vector<float> x{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
    backend_.rope({.x = view(x, 3, 4),
                   .heads = 1,
                   .head_dim = 4,
                   .table = table.get(),
                   .interleaved = interleaved,
                   .positions = positions.data()},
                  kStream);
    const std::vector<float> halves{2, 4, 6, 8, -6, 4, 2, 8, -2, 4, -6, 8};
    const std::vector<float> pairs{2, 4, 6, 8, -4, 2, 6, 8, -2, -4, 6, 8};
    for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(x[i], (interleaved ? pairs : halves)[i], 2e-6) << interleaved << i;
  }
}

// Latent attention rotates the last columns of query heads and of the latent.
TEST_P(RopeTest, FirstRotatedColumn) {
  const std::unique_ptr<RopeTable> table = backend_.make_rope({1.57079633f}, 1.0f, 2);
  const std::vector<std::int32_t> positions{1};
  std::vector<float> x{5, 6, 7, 1, 2, 8, 9, 10, 3, 4};
  RopeArgs args{.x = view(x, 1, 10), .heads = 2, .head_dim = 5, .first = 3};
  args.table = table.get();
  args.positions = positions.data();
  backend_.rope(args, kStream);
  const std::vector<float> expected{5, 6, 7, -2, 1, 8, 9, 10, -4, 3};
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(x[i], expected[i], 1e-6) << i;
  args.first = 4;
  EXPECT_THROW(backend_.rope(args, kStream), Error);
}

TEST_P(RopeTest, AgainstFloat64) {
  const double u = tolerance::unit_roundoff(DType::f32);
  const std::vector<std::int32_t> positions{0, 1, 7, 999, 4095, 3};
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t pairs : {1, 5, 8, 9, 16, 17, 24, 32, 64}) {
      const std::int32_t head_dim =
          static_cast<std::int32_t>(2 * pairs + (pairs % 2 == 0 ? 0 : 6));  // odd ones: partial
      std::vector<float> inv_freq;
      for (std::int64_t i = 0; i < pairs; ++i) {
        inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs)));
      }
      const float factor = 1.25f;
      const std::unique_ptr<RopeTable> table = backend_.make_rope(inv_freq, factor, 4096);
      const std::int32_t heads = 3;
      const std::int64_t width = heads * head_dim;
      const std::vector<float> before = normal_floats(static_cast<std::size_t>(6 * width), 1);
      std::vector<float> x = before;
      backend_.rope({.x = view(x, 6, width),
                     .heads = heads,
                     .head_dim = head_dim,
                     .table = table.get(),
                     .interleaved = interleaved,
                     .positions = positions.data()},
                    kStream);
      for (std::int64_t t = 0; t < 6; ++t) {
        for (std::int32_t h = 0; h < heads; ++h) {
          const std::int64_t base = t * width + h * head_dim;
          for (std::int64_t i = 0; i < pairs; ++i) {
            const auto [first, second] = columns_of(i, pairs, interleaved);
            const float angle =
                static_cast<float>(positions[static_cast<std::size_t>(t)]) * inv_freq[static_cast<std::size_t>(i)];
            const double c = std::cos(static_cast<double>(angle)) * factor;
            const double s = std::sin(static_cast<double>(angle)) * factor;
            const double a = before[base + first];
            const double b = before[base + second];
            const double bound = 5 * u * (std::fabs(a) + std::fabs(b)) * factor;
            ASSERT_NEAR(x[base + first], a * c - b * s, bound) << pairs << " " << t << " " << h << " " << i;
            ASSERT_NEAR(x[base + second], b * c + a * s, bound) << pairs << " " << t << " " << h << " " << i;
          }
          for (std::int64_t c = 2 * pairs; c < head_dim; ++c) ASSERT_EQ(x[base + c], before[base + c]);
        }
      }
    }
  }
}

TEST_P(RopeTest, RefusesPositionsOutsideTheTable) {
  const std::unique_ptr<RopeTable> table = backend_.make_rope({1.0f}, 1.0f, 8);
  std::vector<float> x(2);
  RopeArgs args{.x = view(x, 1, 2), .heads = 1, .head_dim = 2, .table = table.get()};
  for (const std::int32_t position : {-1, 8}) {
    args.positions = &position;
    EXPECT_THROW(backend_.rope(args, kStream), Error) << position;
  }
  args.head_dim = 1;
  EXPECT_THROW(backend_.rope(args, kStream), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, RopeTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
