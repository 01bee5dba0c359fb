// F against the weighted sum of the reference runner, bit by bit.
#include "cuda/finalize.h"

#include <string>

#include "gpu/device_array.h"
#include "gpu/harness.h"
#include "moe/random_layer.h"
#include "moe/reference_stages.h"
#include "numerics/bf16.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Random;

struct SumCase {
  std::int64_t tokens = 1, width = 16, spare = 0;  // spare columns of the output
  std::int32_t top_k = 1;
  bool bf16 = false, routes = false, weighted_input = false;
  std::string text() const {
    return "T " + std::to_string(tokens) + " k " + std::to_string(top_k) + " H " + std::to_string(width) + " spare " +
           std::to_string(spare) + (bf16 ? " bf16" : " f32") + (routes ? " routes" : " sum");
  }
};

void check_case(Check& check, const SumCase& c, Random& random) {
  const std::int64_t count = c.tokens * c.top_k, rows = count + 5;
  std::vector<Bf16> slot_rows;
  for (std::int64_t i = 0; i < rows * c.width; ++i) slot_rows.push_back(to_bf16(random.symmetric(2.0f)));
  std::vector<std::int32_t> route_row;
  std::vector<float> weights;
  for (std::int64_t r = 0; r < count; ++r) {
    route_row.push_back(random.below(4) == 0 ? -1 : random.below(static_cast<std::int32_t>(rows)));
    weights.push_back(random.unit());
  }
  const DeviceArray<Bf16> d_rows(slot_rows);
  const DeviceArray<std::int32_t> d_route(route_row);
  const DeviceArray<float> d_weights(weights);
  const std::int64_t out_rows = c.routes ? count : c.tokens, stride = c.width + c.spare;
  const DeviceArray<float> out_f32(c.bf16 ? 0 : out_rows * stride);
  const DeviceArray<Bf16> out_bf16(c.bf16 ? out_rows * stride : 0);
  cuda::FinalizeArgs a;
  a.slot_rows = d_rows.data();
  a.slot_row_stride = c.width;
  a.route_row = d_route.data();
  a.weights = c.weighted_input ? nullptr : d_weights.data();
  a.tokens = c.tokens;
  a.top_k = c.top_k;
  a.width = c.width;
  a.out = c.bf16 ? static_cast<void*>(out_bf16.data()) : out_f32.data();
  a.out_row_stride = stride;
  a.out_bf16 = c.bf16;
  a.routes = c.routes;
  cuda::check(cuda::launch_finalize(a, nullptr), "launching F");
  cuda::check(cudaDeviceSynchronize(), "F");
  const auto f32 = out_f32.download();
  const auto bf16 = out_bf16.download();
  std::int64_t wrong = 0, touched = 0;
  std::vector<float> expected(static_cast<std::size_t>(c.width)), row(expected.size());
  for (std::int64_t r = 0; r < out_rows; ++r) {
    std::fill(expected.begin(), expected.end(), 0.0f);
    const std::int64_t first = c.routes ? r : r * c.top_k, last = c.routes ? r + 1 : first + c.top_k;
    for (std::int64_t i = first; i < last; ++i) {
      if (route_row[i] < 0) continue;
      const float w = c.routes || c.weighted_input ? 1.0f : weights[i];
      for (std::int64_t h = 0; h < c.width; ++h) expected[h] += w * to_float(slot_rows[route_row[i] * c.width + h]);
    }
    for (std::int64_t h = 0; h < stride; ++h) {
      const std::int64_t at = r * stride + h;
      if (h >= c.width) {
        const bool poison = c.bf16 ? bf16[at].bits == 0xFFFF : f32[at] != f32[at];
        touched += poison ? 0 : 1;
      } else if (c.bf16) {
        wrong += bf16[at].bits != to_bf16(expected[h]).bits ? 1 : 0;
      } else {
        wrong += f32[at] != expected[h] ? 1 : 0;
      }
    }
  }
  check.expect(wrong == 0, std::to_string(wrong) + " wrong values: " + c.text());
  check.expect(touched == 0 && out_f32.intact() && out_bf16.intact(), "wrote beside its rows: " + c.text());
}

void sums(Check& check) {
  Random random(3);
  for (const std::int64_t tokens : {1, 2, 17, 300}) {
    for (const std::int64_t width : {16, 48, 1024, 2880, 7168}) {
      for (const std::int32_t k : {1, 2, 7, 8, 9, 32}) {
        for (const bool bf16 : {false, true}) {
          const std::int64_t spare = random.below(3) == 0 ? 1 + random.below(8) : 0;
          if (tokens * width * k > 4000000) continue;
          check_case(check, {tokens, width, spare, k, bf16, false, k == 1 && random.below(2) == 0}, random);
          check_case(check, {tokens, width, spare, k, bf16, true, false}, random);
        }
      }
    }
  }
}

}  // namespace

std::vector<Test> finalize_tests() { return {{"finalise: sums and routes", sums}}; }

}  // namespace sluice::gpu_tests
