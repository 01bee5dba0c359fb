// A MoE layer over ranks that are threads of this process: every rank with its own group, backend, runner and part of
// the weights. For tests of dispatchers.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "comm/rank_threads.h"
#include "core/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/runner_cpu.h"
#include "dispatch/moe_layer.h"
#include "dispatch/rank_parts.h"
#include "dispatch/router_backend.h"
#include "moe/input_scales.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/weight_slices.h"

namespace sluice::testing {

struct LayerWorld {
  ParallelSizes sizes;
  Problem problem;                             // of the whole layer
  ExpertWeights weights;                       // of the whole layer
  std::shared_ptr<const Placement> placement;  // nullptr = contiguous
  bool quantized_rows = false;
  std::function<std::unique_ptr<Runner>(ThreadPool&)> make_runner;
  std::function<std::unique_ptr<SharedExpert>(Backend&, const RankPlan&)> make_shared;  // empty = none
  // Put around each rank's dispatcher, to break something on purpose; may be empty.
  std::function<std::unique_ptr<Dispatcher>(std::unique_ptr<Dispatcher>, int rank)> wrap;
};

struct RankResult {
  std::vector<float> out;  // [T, W]
  SlotLoad load;
};

namespace detail {

inline RankResult run_rank(const LayerWorld& world, Group& group, const Batch& batch, std::int64_t most_tokens) {
  const RankPlan plan = plan_rank(world.sizes, group.rank());
  const std::unique_ptr<Group> attention = group.split(plan.dp.index);
  ThreadPool pool(1);
  cpu::CpuBackend backend(pool, cpu::Isa::scalar);
  const auto runner = world.make_runner(pool);
  RankResult result;
  auto placement = world.placement;
  if (!placement) {
    placement = std::make_shared<const Placement>(
        Placement::contiguous(world.problem.layer.routing.total_experts(), plan.experts.count));
  }
  MoeLayerParts parts;
  parts.backend = &backend;
  parts.runner = runner.get();
  parts.problem = world.problem;
  LayerSpec& layer = parts.problem.layer;
  const Share share = share_of(layer.intermediate, cut_group(world.problem.recipe), plan.expert);
  layer.intermediate = share.count();
  parts.experts = runner->prepare(parts.problem, part_of_rank(world.weights, *placement, plan, share));
  if (world.make_shared) parts.shared = world.make_shared(backend, plan);
  parts.router = std::make_unique<PlainWeight>(1, 1, std::vector<float>{0.0f});
  DispatcherOptions o;
  o.plan = plan;
  o.world = &group;
  o.attention = attention.get();
  o.backend = &backend;
  o.placement = placement;
  o.recipe = world.problem.recipe;
  o.weight_on_input = layer.weight_on_input;
  o.quantized_rows = world.quantized_rows;
  o.input_scale = layer_input_scales(world.problem.recipe, world.weights.input_scales).gemm1;
  o.load = &result.load;
  parts.dispatcher = make_dispatcher(o);
  if (world.wrap) parts.dispatcher = world.wrap(std::move(parts.dispatcher), group.rank());
  const MoeLayer moe(std::move(parts));

  const Buffer memory = host_buffer(moe.workspace_bytes(most_tokens));
  std::fill_n(memory.as<std::uint32_t>(), memory.bytes() / 4, 0x7FC00000u);
  Workspace workspace(memory.data(), memory.bytes());
  std::vector<LogicalId> ids;
  for (const SlotId id : batch.ids) ids.push_back(LogicalId{raw(id)});
  MoeInput input;
  input.hidden = batch.view();
  input.ids = ids.data();
  std::vector<float> hidden_f32(static_cast<std::size_t>(batch.tokens * batch.width));
  for (std::size_t i = 0; i < hidden_f32.size(); ++i) {
    hidden_f32[i] = batch.dtype == DType::f32 ? reinterpret_cast<const float*>(batch.hidden.data())[i]
                                              : to_float(reinterpret_cast<const Bf16*>(batch.hidden.data())[i]);
  }
  input.hidden_f32 = dense_view(static_cast<const void*>(hidden_f32.data()), DType::f32, batch.tokens, batch.width);
  input.weights = batch.weights.data();
  const LogicalId none{};
  if (ids.empty()) input.ids = &none;
  result.out.assign(static_cast<std::size_t>(batch.tokens * batch.width), std::nanf(""));
  moe.forward(input, dense_view(result.out.data(), DType::f32, batch.tokens, batch.width), workspace, {});
  return result;
}

}  // namespace detail

// batches[g]: tokens of dp group g, whose ids are experts of the model. One result a rank.
inline std::vector<RankResult> run_ranks(const LayerWorld& world, const std::vector<Batch>& batches) {
  constexpr double kTimeoutSeconds = 60.0;
  std::int64_t most = 0;
  for (const Batch& b : batches) most = std::max(most, b.tokens);
  std::vector<RankResult> results(static_cast<std::size_t>(world.sizes.tp));
  on_rank_threads(make_thread_groups(world.sizes.tp, kTimeoutSeconds),
                  [&](std::size_t r, std::unique_ptr<Group>& group) {
                    const auto dp = static_cast<std::size_t>(plan_rank(world.sizes, static_cast<int>(r)).dp.index);
                    results[r] = detail::run_rank(world, *group, batches[dp], most);
                  });
  return results;
}

// The same layer on one rank, all experts there.
inline std::vector<float> run_alone(LayerWorld world, const Batch& batch) {
  world.sizes = ParallelSizes{};
  world.placement = nullptr;
  world.wrap = nullptr;
  world.quantized_rows = false;
  return run_ranks(world, {batch}).front().out;
}

// A random layer on the `cpu` runner (`reference` for recipe f32). Its dispatch is to be set.
struct WorldShape {
  Recipe recipe = Recipe::bf16;
  std::int64_t hidden = 64;
  std::int64_t intermediate = 64;
  std::int32_t experts = 9;
  std::int32_t top_k = 4;
  bool reference = false;
};

inline LayerWorld make_world(const WorldShape& shape) {
  LayerWorld w;
  LayerOptions o;
  o.layer.hidden = shape.hidden;
  o.layer.intermediate = shape.intermediate;
  o.layer.routing.experts = shape.experts;
  o.layer.routing.top_k = shape.top_k;
  w.problem.layer = o.layer;
  w.problem.recipe = shape.recipe;
  w.problem.row_invariant = true;
  w.weights = quantized_weights(o, shape.recipe);
  const bool reference = shape.reference || shape.recipe == Recipe::f32;
  w.make_runner = [reference](ThreadPool& pool) -> std::unique_ptr<Runner> {
    if (reference) return make_reference_runner(&pool);
    return cpu::make_cpu_runner(pool, cpu::Isa::scalar);
  };
  return w;
}

inline Batch batch_for(const LayerWorld& w, std::int64_t tokens, RoutePattern pattern, std::uint64_t seed = 5) {
  return random_batch(w.problem.layer, tokens, w.problem.recipe == Recipe::f32 ? DType::f32 : DType::bf16, pattern,
                      seed);
}

// The part of `whole` [T, W] that a rank has to give.
inline std::vector<float> part_of_output(const std::vector<float>& whole, const LayerWorld& w, const Batch& batch,
                                         std::int32_t rank) {
  const Share s = share_of(batch.tokens, 1, plan_rank(w.sizes, rank).dp);
  return {whole.begin() + s.begin * batch.width, whole.begin() + s.end * batch.width};
}

}  // namespace sluice::testing
