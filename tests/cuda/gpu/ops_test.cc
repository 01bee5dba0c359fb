// Operations of the CUDA backend against the routing and the reference loops of the CPU.
#include <cmath>
#include <string>

#include "cuda/backend.h"
#include "gpu/device_array.h"
#include "gpu/device_batch.h"
#include "gpu/harness.h"
#include "moe/random_layer.h"
#include "moe/reference_stages.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Random;

RoutingSpec spec_of(RoutingMethod method, Scoring scoring, std::int32_t experts, std::int32_t k) {
  RoutingSpec s;
  s.method = method;
  s.scoring = scoring;
  s.experts = experts;
  s.top_k = k;
  if (method == RoutingMethod::grouped_max || method == RoutingMethod::grouped_top2) {
    s.groups = 8;
    s.top_groups = 3;
  }
  s.renormalize = k % 2 == 0;
  s.routed_scaling_factor = 2.5f;
  s.fused_shared = k % 3 == 0 ? 1 : 0;
  return s;
}

void compare_route(Check& check, Backend& backend, RoutingSpec spec, bool with_bias, Random& random) {
  const std::int64_t tokens = 37;
  std::vector<float> logits, bias;
  for (std::int64_t i = 0; i < tokens * spec.experts; ++i) {
    logits.push_back(std::round(random.symmetric(3.0f) * 4.0f) / 4.0f);  // with ties
  }
  logits[5] = NAN;
  for (std::int32_t e = 0; e < spec.experts; ++e) {
    bias.push_back(random.symmetric(0.3f));
    logits[static_cast<std::size_t>(2 * spec.experts + e)] = -INFINITY;
  }
  const auto slots = static_cast<std::size_t>(tokens * spec.slots());
  std::vector<LogicalId> ids(slots);
  std::vector<float> weights(slots);
  if (with_bias) spec.correction_bias = bias.data();
  route_rows(spec, {dense_view(logits.data(), DType::f32, tokens, spec.experts), nullptr, 30},
             {ids.data(), weights.data()}, 0, tokens);
  const DeviceArray<float> d_logits(logits), d_bias(bias), d_weights(static_cast<std::int64_t>(slots));
  const DeviceArray<LogicalId> d_ids(static_cast<std::int64_t>(slots));
  if (with_bias) spec.correction_bias = d_bias.data();
  const void* data = d_logits.data();
  backend.route(spec, {dense_view(data, DType::f32, tokens, spec.experts), nullptr, 30},
                {d_ids.data(), d_weights.data()}, {});
  backend.synchronize({});
  const std::string text = std::string(routing_name(spec.method)) + " E " + std::to_string(spec.experts) + " k " +
                           std::to_string(spec.top_k) + (with_bias ? " with bias" : "");
  check.expect(d_ids.download() == ids, "ids: " + text);
  check.at_most(relative_l2(d_weights.download(), weights), 1e-6, "weights: " + text);
}

void routing(Check& check) {
  const auto backend = cuda::make_backend(0);
  Random random(5);
  for (const RoutingMethod method : {RoutingMethod::score_topk, RoutingMethod::topk_softmax, RoutingMethod::grouped_max,
                                     RoutingMethod::grouped_top2, RoutingMethod::top1_sigmoid}) {
    for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid, Scoring::sqrt_softplus}) {
      for (const std::int32_t experts : {16, 64, 256}) {
        const bool one = method == RoutingMethod::top1_sigmoid;
        for (const std::int32_t k : {1, 4, 6}) {
          if (one && k > 1) continue;
          compare_route(check, *backend, spec_of(method, scoring, experts, k), false, random);
          if (method == RoutingMethod::score_topk || method == RoutingMethod::grouped_top2) {
            compare_route(check, *backend, spec_of(method, scoring, experts, k), true, random);
          }
        }
      }
    }
  }
}

void projections(Check& check) {
  const auto backend = cuda::make_backend(0);
  Random random(8);
  const std::int64_t tokens = 7, cols = 400, rows = 33;
  std::vector<float> x, w, bias, y;
  for (std::int64_t i = 0; i < tokens * cols; ++i) x.push_back(random.symmetric(1.0f));
  for (std::int64_t i = 0; i < rows * cols; ++i) w.push_back(random.symmetric(0.1f));
  for (std::int64_t i = 0; i < rows; ++i) bias.push_back(random.symmetric(1.0f));
  for (std::int64_t i = 0; i < tokens * rows; ++i) y.push_back(random.symmetric(1.0f));
  const QuantTensor weight{{w.data(), DType::f32, rows, cols, cols, 1}, {}, 1.0f};
  const auto dense = backend->prepare_dense(weight, Recipe::f32);
  const DeviceArray<float> d_x(x), d_bias(bias), d_y(y);
  const DeviceArray<std::byte> memory(static_cast<std::int64_t>(backend->workspace_bytes(tokens, 0, cols)));
  Workspace workspace(memory.data(), memory.bytes());
  LinearArgs args;
  args.x = dense_view(static_cast<const void*>(d_x.data()), DType::f32, tokens, cols);
  args.weight = dense.get();
  args.bias = d_bias.data();
  args.y = dense_view(d_y.data(), DType::f32, tokens, rows);
  args.accumulate = true;
  backend->linear(args, workspace, {});
  backend->synchronize({});
  std::vector<float> expected;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t n = 0; n < rows; ++n) {
      const float dot = reference::segmented_dot(x.data() + t * cols, w.data() + n * cols, cols, 256);
      expected.push_back(y[t * rows + n] + (dot + bias[n]));
    }
  }
  check.expect(d_y.download() == expected, "a projection of recipe f32 with bias, accumulated");
  check.expect(d_y.intact() && memory.intact(), "wrote outside");
}

}  // namespace

std::vector<Test> ops_tests() { return {{"backend: routing", routing}, {"backend: projections", projections}}; }

}  // namespace sluice::gpu_tests
