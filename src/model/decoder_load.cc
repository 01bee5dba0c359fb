#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/loader.h"
#include "comm/group.h"
#include "core/error.h"
#include "model/layer_loader.h"
#include "model/rope.h"
#include "model/shared_fusion.h"
#include "moe/input_scales.h"
#include "moe/weight_slices.h"

namespace sluice::model {
namespace {

// `inner` is this rank's part of the intermediate dimension.
DenseFfnWeights load_dense_ffn(LayerLoader& load, const DenseFfnSpec& spec, const Share& inner, std::int64_t hidden) {
  DenseFfnWeights w;
  w.spec = spec;
  w.spec.intermediate = inner.count();
  const Extent part(spec.intermediate, inner);
  w.partial = !part.whole();
  if (is_gated(spec.activation.kind)) w.gate = load.dense(Role::gate, part, hidden);
  w.up = load.dense(Role::up, part, hidden);
  w.down = load.dense(Role::down, hidden, part);
  return w;
}

// nullptr for an empty part.
std::unique_ptr<SharedExpert> load_shared(LayerLoader& load, const SharedExpertSpec& spec, const Share& inner,
                                          std::int64_t hidden, DType compute) {
  const bool gated = is_gated(spec.ffn.activation.kind);
  if (inner.count() == 0) {
    if (gated) load.leave(Role::shared_gate, spec.ffn.intermediate, hidden);
    load.leave(Role::shared_up, spec.ffn.intermediate, hidden);
    load.leave(Role::shared_down, hidden, spec.ffn.intermediate);
    if (spec.output_gate) load.leave(Role::shared_expert_gate, 1, hidden);
    return nullptr;
  }
  auto w = std::make_unique<SharedExpert>();
  w->activation = spec.ffn.activation;
  w->compute = compute;
  const Extent part(spec.ffn.intermediate, inner);
  if (gated) w->gate = load.dense(Role::shared_gate, part, hidden);
  w->up = load.dense(Role::shared_up, part, hidden);
  w->down = load.dense(Role::shared_down, hidden, part);
  if (spec.output_gate) w->output_gate = load.dense(Role::shared_expert_gate, 1, hidden, Recipe::f32);
  return w;
}

struct LoadedMoe {
  std::unique_ptr<MoeLayer> layer;
  std::int64_t expert_bytes = 0;  // of all experts of this rank
  bool quantized_rows = false;    // rows travel quantised
};

std::shared_ptr<const Placement> placement_of(const LayerSpec& spec, const DecoderOptions& options,
                                              std::int64_t layer) {
  if (!options.placements.empty()) return options.placements.at(static_cast<std::size_t>(layer));
  return std::make_shared<Placement>(Placement::contiguous(spec.routing.total_experts(), options.plan.experts.count));
}

DispatcherOptions dispatcher_options(const Problem& problem, const DecoderOptions& options,
                                     std::shared_ptr<const Placement> placement) {
  DispatcherOptions o;
  o.plan = options.plan;
  o.world = options.world;
  o.attention = options.attention;
  o.backend = options.backend;
  o.placement = std::move(placement);
  o.recipe = problem.recipe;
  o.weight_on_input = problem.layer.weight_on_input;
  return o;
}

// Runners were chosen for what they were asked.
void check_problem(const Problem& problem, const LayerSpec& spec, Recipe stored, const RankPlan& plan) {
  Problem whole;
  whole.layer = spec;
  const Problem own = problem_of_rank(whole, stored, plan);
  if (problem.layer.intermediate == own.layer.intermediate && problem.dispatch == own.dispatch) return;
  fail(ErrorCode::usage, fmt::format("decoder options: a problem with I = {}", problem.layer.intermediate),
       fmt::format("I = {}, this rank's part, and its way of dispatching", own.layer.intermediate));
}

// Packs experts, whose scales are looked through meanwhile. A wrong scale may be what packing stumbled over, so that
// its error comes first; of several ranks, whichever is told first.
template <class F>
void with_checked_scales(ckpt::WeightSource& source, F pack) {
  try {
    pack();
  } catch (...) {
    source.finish_checks();
    throw;
  }
  source.finish_checks();
}

// `count` is counted into; nullptr = not wanted.
LoadedMoe load_moe(const BlockSpec& block, ckpt::WeightSource& source, const DecoderOptions& options,
                   std::int64_t layer, SlotLoad* count, std::int64_t& other_bytes) {
  const auto i = static_cast<std::size_t>(layer);
  LayerLoader load(source, options, layer, other_bytes);
  MoeLayerParts parts;
  parts.backend = options.backend;
  parts.runner = options.runners[i];
  parts.problem = options.problems[i];
  check_problem(parts.problem, *block.moe(), source.expert_recipe(layer), options.plan);
  LayerSpec& spec = parts.problem.layer;
  parts.router = load.router(spec.routing.experts, spec.hidden);
  if (block.router_bias) parts.router_bias = load.vector(Role::router_bias, spec.routing.experts);
  if (block.correction_bias) {
    parts.correction_bias = load.vector(Role::correction_bias, spec.routing.experts);
    spec.routing.correction_bias = parts.correction_bias.as<float>();
  }
  if (block.shared) {
    const Piece piece = shared_piece(options.plan);
    const Share inner = shared_part(source, layer, block.shared->ffn, piece);
    parts.shared = load_shared(load, *block.shared, inner, spec.hidden, options.compute);
    if (parts.shared) parts.shared->partial = !piece.whole();
  }
  const auto placement = placement_of(*block.moe(), options, layer);
  const ckpt::ExpertSlice slice = expert_slice(*block.moe(), source.expert_recipe(layer), *placement, options.plan);
  bool quantized_rows = false;
  with_checked_scales(source, [&] {
    ExpertWeights weights = read_experts(source, layer, *block.moe(), slice);
    DispatcherOptions dispatch = dispatcher_options(parts.problem, options, placement);
    dispatch.input_scale = layer_input_scales(parts.problem.recipe, weights.input_scales).gemm1;
    quantized_rows = dispatch.quantized_rows =
        options.quantized_rows && can_quantize_rows(dispatch) && parts.runner->takes_quantized_rows(parts.problem);
    dispatch.load = count;
    parts.dispatcher = make_dispatcher(dispatch);
    parts.experts = parts.runner->prepare(parts.problem, std::move(weights));
  });
  const std::int64_t expert_bytes = parts.experts->resident_bytes();
  return {std::make_unique<MoeLayer>(std::move(parts)), expert_bytes, quantized_rows};
}

const RopeTable* rope_table(std::vector<std::pair<RopeSpec, std::unique_ptr<RopeTable>>>& tables, const RopeSpec& spec,
                            const DecoderOptions& options) {
  for (const auto& [known, table] : tables) {
    if (known == spec) return table.get();
  }
  const RopeFrequencies f = rope_frequencies(spec);
  tables.emplace_back(spec, options.backend->make_rope(f.inv_freq, f.factor, options.max_positions));
  return tables.back().second.get();
}

// Puts the layer into the group of layers that store KV as it does, and opens a group when it is the first.
void place_kv(std::vector<KvSpec>& groups, const DecoderOptions& options, AttentionWeights& w) {
  const AttentionSpec& a = w.spec;
  KvSpec spec;
  spec.kind = a.window > 0 ? KvSpec::Kind::sliding : KvSpec::Kind::gqa;
  spec.kv_heads = a.kv_heads;
  spec.head_dim = a.head_dim;
  if (a.mla) {
    spec.kind = KvSpec::Kind::mla_latent;
    spec.kv_heads = 1;
    spec.head_dim = a.mla->latent_width();
    spec.value_dim = a.mla->kv_lora_rank;
  }
  spec.dtype = options.compute;
  spec.block_tokens = options.block_tokens;
  const auto same = [&](const KvSpec& g) {
    return g.kind == spec.kind && g.kv_heads == spec.kv_heads && g.head_dim == spec.head_dim &&
           g.value_dim == spec.value_dim;
  };
  auto group = std::find_if(groups.begin(), groups.end(), same);
  if (group == groups.end()) group = groups.insert(groups.end(), spec);
  w.kv_group = static_cast<std::size_t>(group - groups.begin());
  w.kv_layer = group->layers++;
}

DecoderOptions with_groups(DecoderOptions options) {
  if (options.attention == nullptr && options.plan.dp.whole()) options.attention = options.world;
  return options;
}

void check_group(const Group* group, int rank, int size, const char* whose) {
  const bool fits = group == nullptr ? size == 1 : group->size() == size && group->rank() == rank;
  if (fits) return;
  fail(ErrorCode::usage, fmt::format("decoder options: the group of {} does not fit the rank's plan", whose),
       fmt::format("rank {} of {}", rank, size));
}

void check_options(const ModelConfig& config, const DecoderOptions& options) {
  const std::size_t layers = config.layers.size();
  if (options.backend == nullptr || options.runners.size() != layers || options.problems.size() != layers) {
    fail(ErrorCode::usage, "decoder options do not fit the model",
         fmt::format("a backend, {} runners and {} problems", layers, layers));
  }
  if (options.compute != DType::bf16 && options.compute != DType::f32) {
    fail(ErrorCode::unsupported, fmt::format("compute type {}", dtype_name(options.compute)), "bf16 or f32");
  }
  check_group(options.world, options.plan.rank, options.plan.sizes.tp, "all ranks");
  check_group(options.attention, options.plan.attention.index, options.plan.attention.count, "attention's ranks");
}

std::uint64_t file_bytes(const ckpt::WeightSource& source, std::int64_t layers) {
  std::uint64_t bytes = 0;
  for (std::int64_t i = ckpt::kOutsideLayers; i < layers; ++i) bytes += source.bytes(i);
  return bytes;
}

// Tells the source which experts will be asked for, so that it reads no others ahead.
void expect_experts(const ModelConfig& config, ckpt::WeightSource& source, const DecoderOptions& options) {
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec* spec = config.layers[i].moe();
    if (spec == nullptr || options.plan.sizes.tp == 1) continue;
    const auto layer = static_cast<std::int64_t>(i);
    const auto placement = placement_of(*spec, options, layer);
    source.expect_experts(layer, expert_slice(*spec, source.expert_recipe(layer), *placement, options.plan));
  }
}

bool counts_rows(const DecoderOptions& options) {
  return options.plan.sizes.tp > 1 && options.backend->device().kind == DeviceKind::cpu;
}

BlockWeights load_block(Decoder::Parts& parts, ckpt::WeightSource& source, std::int64_t layer) {
  const ModelConfig& config = parts.config;
  const BlockSpec& spec = config.layers[static_cast<std::size_t>(layer)];
  const TraceSpan span(parts.options.trace, "load layer", "layer", layer);
  LayerLoader load(source, parts.options, layer, parts.bytes.per_token);
  BlockWeights block;
  const RankPlan& plan = parts.options.plan;
  const AttentionPart heads =
      attention_part(spec.attention, attention_cuts(source, layer, spec.attention), plan.attention);
  block.attention = load_attention(load, spec.attention, heads, config.hidden);
  block.attention.rope = rope_table(parts.ropes, spec.attention.rope, parts.options);
  place_kv(parts.kv_specs, parts.options, block.attention);
  block.ffn_norm = load.vector(Role::ffn_norm, config.hidden);
  if (spec.moe() == nullptr) {
    const Share inner = dense_part(source, layer, *spec.dense(), plan.dense);
    block.dense = load_dense_ffn(load, *spec.dense(), inner, config.hidden);
    return block;
  }
  SlotLoad* count = nullptr;
  if (counts_rows(parts.options)) {
    block.placement = placement_of(*spec.moe(), parts.options, layer);
    count = &parts.loads.at(static_cast<std::size_t>(layer));
    count->rows.resize(static_cast<std::size_t>(block.placement->of_rank(plan.experts.index).count));
  }
  LoadedMoe moe = load_moe(spec, source, parts.options, layer, count, parts.bytes.per_token);
  block.moe = std::move(moe.layer);
  block.quantized_rows = moe.quantized_rows;
  block.expert_bytes = moe.expert_bytes / spec.moe()->routing.total_experts();
  parts.bytes.experts += moe.expert_bytes;
  return block;
}

void load_ends(Decoder::Parts& parts, ckpt::WeightSource& source) {
  const TraceSpan span(parts.options.trace, "load embedding and output");
  const ModelConfig& c = parts.config;
  LayerLoader load(source, parts.options, ckpt::kOutsideLayers, parts.bytes.per_token);
  const Piece& piece = parts.options.plan.attention;
  const std::vector<Share> columns = embedding_columns(source, c.hidden, piece), rows = output_rows(c.vocab, piece);
  QuantTensor table = source.tensor(role_name(Role::embedding), ckpt::kOutsideLayers, c.vocab, c.hidden);
  if (columns.size() > 1) table = columns_of(table, own_share(columns, piece));
  parts.embedding = parts.options.backend->prepare_embedding(table);
  parts.bytes.embedding = parts.embedding->resident_bytes;
  parts.final_norm = load.vector(Role::final_norm, c.hidden);
  const Extent outputs{c.vocab, own_share(rows, piece)};
  parts.output = load.dense(c.tied_embeddings ? Role::embedding : Role::output, outputs, c.hidden);
  const auto over_ranks = [&](const std::vector<Share>& shares) -> std::unique_ptr<RankColumns> {
    if (shares.size() == 1) return nullptr;
    return std::make_unique<RankColumns>(*parts.options.backend, *parts.options.attention, shares);
  };
  parts.embedded = over_ranks(columns);
  parts.logits = over_ranks(rows);
}

}  // namespace

std::unique_ptr<MoeLayer> load_moe_layer(const ModelConfig& config, ckpt::WeightSource& source,
                                         const DecoderOptions& given, std::int64_t layer) {
  const DecoderOptions options = with_groups(given);
  check_options(config, options);
  if (layer < 0 || layer >= static_cast<std::int64_t>(config.layers.size()) ||
      config.layers[static_cast<std::size_t>(layer)].moe() == nullptr) {
    fail(ErrorCode::usage, fmt::format("layer {} has no experts", layer),
         fmt::format("a MoE layer among 0..{}", config.layers.size() - 1));
  }
  std::int64_t bytes = 0;
  return load_moe(config.layers[static_cast<std::size_t>(layer)], source, options, layer, nullptr, bytes).layer;
}

std::unique_ptr<Decoder> load_decoder(const ModelConfig& config, ckpt::WeightSource& source,
                                      const DecoderOptions& given, const ProgressSink& progress) {
  const DecoderOptions options = with_groups(given);
  check_options(config, options);
  auto parts = std::make_unique<Decoder::Parts>();
  parts->config = config;
  parts->options = options;
  parts->loads.resize(config.layers.size());
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  expect_experts(config, source, options);
  ckpt::LoadMeter meter(progress, file_bytes(source, layers));
  load_ends(*parts, source);
  source.release(ckpt::kOutsideLayers);
  meter.add(source.bytes(ckpt::kOutsideLayers));
  for (std::int64_t i = 0; i < layers; ++i) {
    parts->blocks.push_back(load_block(*parts, source, i));
    source.release(i);
    meter.add(source.bytes(i));
  }
  return std::make_unique<Decoder>(std::move(parts));
}

}  // namespace sluice::model
