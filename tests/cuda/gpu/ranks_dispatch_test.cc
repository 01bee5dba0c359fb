// The dispatchers that runs over ranks use, with ranks as threads whose experts are all on the one GPU: rows and sums
// travel in host memory, every rank's slice is computed by the Hopper runner.
#include <functional>
#include <string>
#include <utility>

#include "comm/group.h"
#include "comm/rank_threads.h"
#include "dispatch/moe_layer.h"
#include "dispatch/router_backend.h"
#include "gpu/harness.h"
#include "gpu/ranks_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::on_rank_threads;
using sluice::testing::OutputKind;
using sluice::testing::parallel_sizes;
using Wrap = std::function<std::unique_ptr<Dispatcher>(std::unique_ptr<Dispatcher>)>;

// Host memory; sums slot rows as moe/backend.h says.
class HomeBackend final : public sluice::testing::RouterBackend {
 public:
  void sum_slot_rows(const SlotSumArgs& args, Stream) override {
    for (std::int64_t t = 0; t < args.out.rows; ++t) {
      float* out = args.out.row<float>(t);
      std::fill_n(out, args.out.cols, 0.0f);
      for (std::int32_t s = 0; s < args.top_k; ++s) {
        const std::int32_t row = args.row_of[t * args.top_k + s];
        if (row < 0) continue;
        const Bf16* values = args.rows.row<Bf16>(row);
        for (std::int64_t c = 0; c < args.out.cols; ++c) {
          out[c] += args.weights[t * args.top_k + s] * to_float(values[c]);
        }
      }
    }
  }
};

// Sends one route of rank 1 to the expert beside the right one.
class Astray final : public Dispatcher {
 public:
  explicit Astray(std::unique_ptr<Dispatcher> inner) : inner_(std::move(inner)) {}
  DispatchKind kind() const override { return inner_->kind(); }
  std::size_t workspace_bytes(std::int64_t t, std::int32_t k, std::int64_t w) const override {
    return inner_->workspace_bytes(t, k, w);
  }
  std::int64_t most_rows(std::int64_t tokens) const override { return inner_->most_rows(tokens); }
  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) override {
    Dispatched d = inner_->dispatch(input, workspace, stream);
    ids_.assign(d.ids, d.ids + d.hidden.rows * d.top_k);
    for (SlotId& id : ids_) {
      if (!d.slots.contains(id) || d.slots.count < 2) continue;
      id = SlotId{d.slots.first + (raw(id) - d.slots.first + 1) % d.slots.count};
      break;
    }
    d.ids = ids_.data();
    return d;
  }
  void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& workspace, Stream stream) override {
    inner_->combine(out, meanwhile, workspace, stream);
  }

 private:
  std::unique_ptr<Dispatcher> inner_;
  std::vector<SlotId> ids_;
};

struct World {
  const LayerOverRanks& layer;
  ParallelSizes sizes;
  std::int64_t most_tokens = 0;
  Wrap wrap;  // of rank 1's dispatcher; may be empty
};

MoeLayer make_layer(const World& world, RankSlice slice, Group& group, Group& attention, Backend& backend) {
  DispatcherOptions o;
  o.plan = slice.plan;
  o.world = &group;
  o.attention = &attention;
  o.backend = &backend;
  o.placement =
      std::make_shared<const Placement>(Placement::contiguous(world.layer.spec.experts, slice.plan.experts.count));
  o.recipe = world.layer.spec.recipe;
  MoeLayerParts parts;
  parts.backend = &backend;
  parts.runner = &world.layer.gpu;
  parts.problem = slice.problem;
  parts.experts = std::move(slice.experts);
  parts.router = std::make_unique<sluice::testing::PlainWeight>(1, 1, Floats{0.0f});
  parts.dispatcher = make_dispatcher(o);
  if (world.wrap && slice.plan.rank == 1) parts.dispatcher = world.wrap(std::move(parts.dispatcher));
  return MoeLayer(std::move(parts));
}

Floats run_rank(const World& world, Group& group, const Batch& batch) {
  HomeBackend backend;
  RankSlice slice = world.layer.slice(world.sizes, group.rank());
  const std::unique_ptr<Group> attention = group.split(slice.plan.dp.index);
  const MoeLayer moe = make_layer(world, std::move(slice), group, *attention, backend);
  const Buffer memory = host_buffer(moe.workspace_bytes(world.most_tokens));
  std::fill_n(memory.as<std::uint32_t>(), memory.bytes() / 4, 0x7FC00000u);
  Workspace workspace(memory.data(), memory.bytes());
  std::vector<LogicalId> ids(1);  // never without an address
  ids.clear();
  for (const SlotId id : batch.ids) ids.push_back(LogicalId{raw(id)});
  MoeInput input;
  input.hidden = batch.view();
  input.ids = ids.data();
  input.weights = batch.weights.data();
  Floats out(static_cast<std::size_t>(batch.tokens * batch.width), NAN);
  moe.forward(input, dense_view(out.data(), DType::f32, batch.tokens, batch.width), workspace, {});
  return out;
}

// [ranks] outputs. Group g of dp has the tokens of its share of `batch`.
std::vector<Floats> run_ranks(const World& world, const Batch& batch) {
  constexpr double kTimeoutSeconds = 60.0;
  const std::vector<Batch> batches = sluice::testing::cut_batch(batch, world.sizes.dp);
  std::vector<Floats> outputs(static_cast<std::size_t>(world.sizes.tp));
  on_rank_threads(make_thread_groups(world.sizes.tp, kTimeoutSeconds),
                  [&](std::size_t r, std::unique_ptr<Group>& group) {
                    const auto dp = static_cast<std::size_t>(plan_rank(world.sizes, static_cast<int>(r)).dp.index);
                    outputs[r] = run_rank(world, *group, batches[dp]);
                  });
  return outputs;
}

// What rank r has to have of [T, H].
Floats part_of(const Floats& whole, const World& world, const Batch& batch, std::size_t r) {
  const Share s = share_of(batch.tokens, 1, plan_rank(world.sizes, static_cast<std::int32_t>(r)).dp);
  return {whole.begin() + s.begin * batch.width, whole.begin() + s.end * batch.width};
}

// Ranks whose bits are not those of one rank.
int ranks_that_differ(const World& world, const Batch& batch, const Floats& whole) {
  int differ = 0;
  const std::vector<Floats> outputs = run_ranks(world, batch);
  for (std::size_t r = 0; r < outputs.size(); ++r) differ += !same_bits(outputs[r], part_of(whole, world, batch, r));
  return differ;
}

// [T * k] norms of the slot rows of all pieces of an expert, added up.
std::vector<double> piece_norms(const LayerOverRanks& layer, std::int32_t pieces, const Batch& batch) {
  std::vector<double> norms(batch.ids.size());
  for (std::int32_t p = 0; p < pieces; ++p) {
    const Floats rows = layer.run(layer.slice(parallel_sizes(pieces, 1, 1), p), batch, OutputKind::routes_f32);
    for (std::size_t r = 0; r < norms.size(); ++r)
      norms[r] += row_norm(rows, static_cast<std::int64_t>(r), batch.width);
  }
  return norms;
}

// The largest distance of a token on any rank from one rank's, in units of its bound.
double worst_on_ranks(const World& world, const Batch& batch, const Floats& whole) {
  const LayerOverRanks& layer = world.layer;
  const std::int32_t pieces = world.sizes.tp / world.sizes.ep;
  const std::vector<double> norms = pieces > 1 ? piece_norms(layer, pieces, batch) : std::vector<double>{};
  const Floats rows = layer.run_whole(batch, OutputKind::routes_f32);
  const std::vector<double> bounds = token_bounds(layer.spec, batch, rows, norms, pieces);
  const std::vector<Floats> outputs = run_ranks(world, batch);
  double worst = 0.0;
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    const Share s = share_of(batch.tokens, 1, plan_rank(world.sizes, static_cast<std::int32_t>(r)).dp);
    const std::vector<double> mine(bounds.begin() + s.begin, bounds.begin() + s.end);
    worst = std::max(worst, worst_in_bounds(outputs[r], part_of(whole, world, batch, r), mine));
  }
  return worst;
}

std::string name_of(const World& w) {
  return "tp " + std::to_string(w.sizes.tp) + " ep " + std::to_string(w.sizes.ep) + " dp " +
         std::to_string(w.sizes.dp) + ": " + w.layer.spec.text();
}

void alltoall(Check& check) {
  for (const LayerCase& c : rank_cases()) {
    const LayerOverRanks layer(c);
    for (const std::int64_t tokens : {3, 29}) {
      const Batch batch = rank_batch(c, tokens, static_cast<std::uint64_t>(tokens));
      const Floats whole = layer.run_whole(batch, OutputKind::sum_f32);
      for (const auto& [ranks, dp] : {std::pair{2, 2}, {3, 1}, {4, 2}, {8, 8}}) {
        const World world{layer, parallel_sizes(ranks, ranks, dp, MoeA2a::alltoall), tokens, {}};
        check.equal(ranks_that_differ(world, batch, whole), 0, "other bits than one rank, " + name_of(world));
      }
    }
  }
}

void sums(Check& check, const std::vector<ParallelSizes>& all) {
  for (const LayerCase& c : rank_cases()) {
    const LayerOverRanks layer(c);
    const Batch batch = rank_batch(c, 22, 4);
    const Floats whole = layer.run_whole(batch, OutputKind::sum_f32);
    for (const ParallelSizes& sizes : all) {
      const World world{layer, sizes, batch.tokens, {}};
      check.at_most(worst_on_ranks(world, batch, whole), 1.0, "distance in bounds, " + name_of(world));
    }
  }
  check.note("worst: distance from one rank in units of its bound");
}

void allreduce(Check& check) {
  sums(check, {parallel_sizes(2, 2, 1), parallel_sizes(3, 3, 1), parallel_sizes(8, 8, 1), parallel_sizes(2, 1, 1),
               parallel_sizes(4, 1, 1), parallel_sizes(4, 2, 1), parallel_sizes(6, 3, 1)});
}

void allgather(Check& check) {
  sums(check, {parallel_sizes(2, 2, 2), parallel_sizes(4, 4, 2), parallel_sizes(4, 2, 4), parallel_sizes(4, 1, 2),
               parallel_sizes(8, 8, 8)});
}

void faults(Check& check) {
  const Wrap wrap = [](std::unique_ptr<Dispatcher> inner) { return std::make_unique<Astray>(std::move(inner)); };
  for (const LayerCase& c : rank_cases()) {
    if (c.bias) continue;
    const LayerOverRanks layer(c);
    const Batch batch = rank_batch(c, 10, 6);
    const Floats whole = layer.run_whole(batch, OutputKind::sum_f32);
    const World bits{layer, parallel_sizes(3, 3, 3, MoeA2a::alltoall), batch.tokens, wrap};
    check.expect(ranks_that_differ(bits, batch, whole) > 0, "a route astray was not noticed, " + name_of(bits));
    const World sum{layer, parallel_sizes(3, 3, 1), batch.tokens, wrap};
    check.expect(worst_on_ranks(sum, batch, whole) > 1.0, "a route astray was not noticed, " + name_of(sum));
  }
}

}  // namespace

std::vector<Test> ranks_dispatch_tests() {
  return {{"ranks: all-to-all", alltoall},
          {"ranks: all-reduce", allreduce},
          {"ranks: all-gather", allgather},
          {"ranks: faults are seen", faults}};
}

}  // namespace sluice::gpu_tests
