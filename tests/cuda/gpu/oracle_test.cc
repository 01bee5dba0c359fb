// The oracle against the reference runner on the CPU.
#include "cuda/oracle.h"

#include <cmath>
#include <string>

#include "gpu/device_array.h"
#include "gpu/device_batch.h"
#include "gpu/harness.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::FormatOptions;
using sluice::testing::LayerOptions;
using sluice::testing::RoutePattern;

Problem problem_of(Recipe recipe, std::int64_t hidden, std::int64_t inner, ActivationKind activation, bool bias) {
  Problem p;
  p.recipe = recipe;
  p.layer.hidden = hidden;
  p.layer.intermediate = inner;
  p.layer.activation.kind = activation;
  p.layer.has_bias = bias;
  p.layer.routing.experts = 5;
  p.layer.routing.top_k = 3;
  return p;
}

void compare(Check& check, const Problem& problem, const FormatOptions& format, std::uint64_t seed) {
  LayerOptions o;
  o.layer = problem.layer;
  o.seed = seed;
  const ExpertWeights weights = sluice::testing::quantized_weights(o, problem.recipe, format);
  const Batch batch = sluice::testing::random_batch(problem.layer, 9, DType::bf16, RoutePattern::uniform, seed);
  const auto reference = make_reference_runner(nullptr);
  const auto prepared = reference->prepare(problem, ExpertWeights(weights));
  const std::vector<float> expected = sluice::testing::run_batch(*reference, *prepared, problem, batch);
  const cuda::Oracle oracle(problem, weights, 0);
  const DeviceBatch device(batch);
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < batch.tokens; ++t) tokens.push_back(t);
  const std::vector<float> got = oracle.rows(device.oracle_batch(), tokens).sum;
  // The exponential may differ in its last bit, which may move a code of the intermediate by one step.
  const double bound = problem.recipe == Recipe::bf16 ? 2e-4 : 2e-3;
  check.at_most(relative_l2(got, expected), bound,
                std::string(recipe_info(problem.recipe).name) + " " +
                    std::string(activation_name(problem.layer.activation.kind)));
}

void like_the_reference(Check& check) {
  constexpr ActivationKind kKinds[] = {ActivationKind::swiglu,         ActivationKind::geglu_erf,
                                       ActivationKind::geglu_tanh,     ActivationKind::swiglu_oai,
                                       ActivationKind::swiglu_clamped, ActivationKind::swiglu_step,
                                       ActivationKind::situ,           ActivationKind::relu2};
  std::uint64_t seed = 1;
  for (const Recipe recipe : {Recipe::bf16, Recipe::fp8_block, Recipe::fp8_tensor}) {
    for (const ActivationKind kind : kKinds) {
      compare(check, problem_of(recipe, 160, 144, kind, seed % 2 == 0), {}, seed);
      ++seed;
    }
  }
  FormatOptions channel;
  channel.per_channel = true;
  channel.static_input = false;
  compare(check, problem_of(Recipe::fp8_tensor, 768, 400, ActivationKind::swiglu, true), channel, 91);
  FormatOptions e8m0;
  e8m0.block_scale = DType::e8m0;
  compare(check, problem_of(Recipe::fp8_block, 784, 400, ActivationKind::swiglu, true), e8m0, 92);
  Problem weighted = problem_of(Recipe::fp8_block, 256, 144, ActivationKind::swiglu, true);
  weighted.layer.routing.top_k = 1;
  weighted.layer.weight_on_input = true;
  compare(check, weighted, {}, 93);
}

}  // namespace

std::vector<Test> oracle_tests() { return {{"oracle: like the reference runner", like_the_reference}}; }

}  // namespace sluice::gpu_tests
