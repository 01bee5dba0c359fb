#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/loader.h"
#include "comm/group.h"
#include "core/error.h"
#include "model/decoder_parts.h"
#include "model/rank_part.h"
#include "model/roles.h"
#include "model/rope.h"
#include "model/shared_fusion.h"
#include "moe/weight_slices.h"
#include "moe/weight_values.h"

namespace sluice::model {
namespace {

// One dimension of a weight: what the files have of it, and the part that this rank holds.
struct Extent {
  Extent(std::int64_t n) : all(n), part{0, n} {}  // NOLINT(google-explicit-constructor): the whole
  Extent(std::int64_t n, const Share& share) : all(n), part(share) {}
  // `share` of things that take `width` elements each.
  static Extent of(std::int64_t things, const Share& share, std::int64_t width) {
    return {things * width, {share.begin * width, share.end * width}};
  }
  bool whole() const { return part.count() == all; }

  std::int64_t all;
  Share part;
};

// Prepares the tensors of one layer and counts what they take.
class LayerLoader {
 public:
  LayerLoader(ckpt::WeightSource& source, const DecoderOptions& options, std::int64_t layer, std::int64_t& bytes)
      : source_(source), options_(options), layer_(layer), bytes_(bytes) {}

  std::unique_ptr<DenseWeight> dense(Role role, const Extent& rows, const Extent& cols) {
    const Recipe stored = source_.tensor_recipe(role_name(role), layer_);
    return dense(role, rows, cols, options_.compute == DType::f32 ? Recipe::f32 : stored);
  }
  // The router, whose NaN routing would hide: it gives such a row no weight and the answer would only be wrong.
  std::unique_ptr<DenseWeight> router(std::int64_t experts, std::int64_t cols) {
    const QuantTensor values = tensor(Role::router, experts, cols);
    require_finite(Role::router, values);
    return prepared(values, Recipe::f32);
  }
  std::unique_ptr<DenseWeight> dense(Role role, const Extent& rows, const Extent& cols, Recipe recipe) {
    QuantTensor part = tensor(role, rows.all, cols.all);
    std::vector<std::byte> scales;
    if (!rows.whole()) part = rows_of(part, rows.part, scales);
    if (!cols.whole()) part = columns_of(part, cols.part);
    return prepared(part, recipe);
  }
  QuantTensor tensor(Role role, std::int64_t rows, std::int64_t cols) {
    return source_.tensor(role_name(role), layer_, rows, cols);
  }
  std::unique_ptr<DenseWeight> heads(const std::vector<QuantTensor>& weights) {
    auto weight = options_.backend->prepare_heads(weights, options_.compute);
    bytes_ += weight->resident_bytes;
    return weight;
  }
  Buffer vector(Role role, const Extent& cols) {
    const QuantTensor values = tensor(role, 1, cols.all);
    require_finite(role, values);
    Buffer buffer = options_.backend->prepare_vector(columns_of(values, cols.part));
    bytes_ += static_cast<std::int64_t>(buffer.bytes());
    return buffer;
  }

 private:
  std::unique_ptr<DenseWeight> prepared(const QuantTensor& values, Recipe recipe) {
    auto weight = options_.backend->prepare_dense(values, recipe);
    bytes_ += weight->resident_bytes;
    return weight;
  }
  void require_finite(Role role, const QuantTensor& values) const {
    const std::int64_t row = first_non_finite_row(values);
    if (row < 0) return;
    const std::string place = layer_ == ckpt::kOutsideLayers ? "" : "layer " + std::to_string(layer_) + ": ";
    fail(ErrorCode::bad_input,
         place + std::string(role_name(role)) + ": row " + std::to_string(row) + " holds NaN or infinity",
         "finite values", "get the checkpoint again; `sluice check --weights` lists all damaged tensors");
  }

  ckpt::WeightSource& source_;
  const DecoderOptions& options_;
  std::int64_t layer_;
  std::int64_t& bytes_;
};

QuantTensor transposed(QuantTensor matrix) {
  std::swap(matrix.codes.rows, matrix.codes.cols);
  std::swap(matrix.codes.row_stride, matrix.codes.col_stride);
  return matrix;
}

// Splits the rank's heads of kv_b into the two products of the absorbed form. Scaled formats are decoded to f32 first,
// since a head need not begin at a block of scales; the parts are rounded once to the compute type, which is exact for
// bf16 files.
void load_kv_b(LayerLoader& load, const AttentionSpec& all, const Share& heads, LatentWeights& w) {
  const MlaSpec& m = *all.mla;
  const std::int64_t head_rows = m.nope_dim + m.v_dim;
  QuantTensor kv_b = load.tensor(Role::kv_b, all.heads * head_rows, m.kv_lora_rank);
  std::vector<float> decoded;
  std::int64_t first = heads.begin * head_rows;
  if (kv_b.block_scale.data != nullptr || kv_b.tensor_scale != 1.0f) {
    const std::int64_t rows = heads.count() * head_rows, cols = kv_b.codes.cols;
    decoded.resize(static_cast<std::size_t>(rows * cols));
    for (std::int64_t n = 0; n < rows; ++n) decode_row(kv_b, first + n, decoded.data() + n * cols);
    kv_b = {};
    kv_b.codes = {decoded.data(), DType::f32, rows, cols, cols, 1};
    first = 0;
  }
  std::vector<QuantTensor> keys;
  std::vector<QuantTensor> values;
  for (std::int64_t row = first; row < first + heads.count() * head_rows; row += head_rows) {
    keys.push_back(transposed(rows_of(kv_b, {row, row + m.nope_dim})));
    values.push_back(rows_of(kv_b, {row + m.nope_dim, row + head_rows}));
  }
  w.keys = load.heads(keys);
  w.values = load.heads(values);
}

LatentWeights load_latent(LayerLoader& load, const AttentionSpec& a, const Share& heads, std::int64_t hidden) {
  const MlaSpec& m = *a.mla;
  const Extent queries = Extent::of(a.heads, heads, a.head_dim);
  LatentWeights w;
  if (m.q_lora_rank == 0) {
    w.q = load.dense(Role::q, queries, hidden);
  } else {
    w.q_a = load.dense(Role::q_a, m.q_lora_rank, hidden);
    w.q_a_norm = load.vector(Role::q_a_norm, m.q_lora_rank);
    w.q_b = load.dense(Role::q_b, queries, m.q_lora_rank);
  }
  w.kv_a = load.dense(Role::kv_a, m.latent_width(), hidden);
  w.kv_a_norm = load.vector(Role::kv_a_norm, m.kv_lora_rank);
  load_kv_b(load, a, heads, w);
  return w;
}

void load_qkv(LayerLoader& load, const AttentionSpec& a, const AttentionPart& part, std::int64_t hidden,
              AttentionWeights& w) {
  const Extent queries = Extent::of(a.heads, part.heads, a.head_dim);
  const Extent keys = Extent::of(a.kv_heads, part.kv_heads, a.head_dim);
  w.q = load.dense(Role::q, queries, hidden);
  w.k = load.dense(Role::k, keys, hidden);
  w.v = load.dense(Role::v, keys, hidden);
  if (a.qkv_bias) {
    w.q_bias = load.vector(Role::q_bias, queries);
    w.k_bias = load.vector(Role::k_bias, keys);
    w.v_bias = load.vector(Role::v_bias, keys);
  }
  if (a.qk_norm == QkNorm::per_head) {
    w.q_norm = load.vector(Role::q_norm, a.head_dim);
    w.k_norm = load.vector(Role::k_norm, a.head_dim);
  } else if (a.qk_norm == QkNorm::whole_width) {
    w.q_norm = load.vector(Role::q_norm, queries);
    w.k_norm = load.vector(Role::k_norm, keys);
  }
}

// `a` is of the whole model.
AttentionWeights load_attention(LayerLoader& load, const AttentionSpec& a, const AttentionPart& part,
                                std::int64_t hidden) {
  AttentionWeights w;
  w.spec = spec_of_part(a, part);
  w.partial = part.partial;
  w.norm = load.vector(Role::attention_norm, hidden);
  w.o = load.dense(Role::o, hidden, Extent::of(a.heads, part.heads, a.output_width() / a.heads));
  if (a.mla) {
    w.latent = load_latent(load, a, part.heads, hidden);
  } else {
    load_qkv(load, a, part, hidden, w);
  }
  // One rank adds the bias to the sum over ranks.
  if (a.output_bias && part.heads.begin == 0) w.o_bias = load.vector(Role::o_bias, hidden);
  if (a.sinks) w.sinks = load.vector(Role::sinks, {a.heads, part.heads});
  return w;
}

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
  if (inner.count() == 0) return nullptr;
  auto w = std::make_unique<SharedExpert>();
  w->activation = spec.ffn.activation;
  w->compute = compute;
  const Extent part(spec.ffn.intermediate, inner);
  if (is_gated(spec.ffn.activation.kind)) w->gate = load.dense(Role::shared_gate, part, hidden);
  w->up = load.dense(Role::shared_up, part, hidden);
  w->down = load.dense(Role::shared_down, hidden, part);
  if (spec.output_gate) w->output_gate = load.dense(Role::shared_expert_gate, 1, hidden, Recipe::f32);
  return w;
}

struct LoadedMoe {
  std::unique_ptr<MoeLayer> layer;
  std::int64_t expert_bytes = 0;  // of all experts
};

std::shared_ptr<const Placement> placement_of(const LayerSpec& spec, const DecoderOptions& options,
                                              std::int64_t layer) {
  if (!options.placements.empty()) return options.placements.at(static_cast<std::size_t>(layer));
  return std::make_shared<Placement>(Placement::contiguous(spec.routing.total_experts(), options.plan.experts.count));
}

ckpt::ExpertSlice slice_of(const LayerSpec& spec, const ckpt::WeightSource& source, const DecoderOptions& options,
                           std::int64_t layer) {
  return expert_slice(spec, source.expert_recipe(layer), *placement_of(spec, options, layer), options.plan);
}

LoadedMoe load_moe(const BlockSpec& block, ckpt::WeightSource& source, const DecoderOptions& options,
                   std::int64_t layer, std::int64_t& other_bytes) {
  const auto i = static_cast<std::size_t>(layer);
  LayerLoader load(source, options, layer, other_bytes);
  MoeLayerParts parts;
  parts.backend = options.backend;
  parts.runner = options.runners[i];
  parts.problem = options.problems[i];
  LayerSpec& spec = parts.problem.layer;
  parts.router = load.router(spec.routing.experts, spec.hidden);
  if (block.router_bias) parts.router_bias = load.vector(Role::router_bias, spec.routing.experts);
  if (block.correction_bias) {
    parts.correction_bias = load.vector(Role::correction_bias, spec.routing.experts);
    spec.routing.correction_bias = parts.correction_bias.as<float>();
  }
  if (block.shared) {
    const Share inner = shared_part(source, layer, block.shared->ffn, shared_piece(options.plan));
    parts.shared = load_shared(load, *block.shared, inner, spec.hidden, options.compute);
  }
  parts.dispatcher = make_local_dispatcher(spec.routing.total_experts());
  const ckpt::ExpertSlice slice = slice_of(*block.moe(), source, options, layer);
  parts.experts = parts.runner->prepare(parts.problem, read_experts(source, layer, *block.moe(), slice));
  const std::int64_t expert_bytes = parts.experts->resident_bytes();
  return {std::make_unique<MoeLayer>(std::move(parts)), expert_bytes};
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

BlockWeights load_block(Decoder::Parts& parts, ckpt::WeightSource& source, std::int64_t layer) {
  const ModelConfig& config = parts.config;
  const BlockSpec& spec = config.layers[static_cast<std::size_t>(layer)];
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
  LoadedMoe moe = load_moe(spec, source, parts.options, layer, parts.bytes.per_token);
  block.moe = std::move(moe.layer);
  block.expert_bytes = moe.expert_bytes / spec.moe()->routing.total_experts();
  parts.bytes.experts += moe.expert_bytes;
  return block;
}

void load_ends(Decoder::Parts& parts, ckpt::WeightSource& source) {
  const ModelConfig& c = parts.config;
  LayerLoader load(source, parts.options, ckpt::kOutsideLayers, parts.bytes.per_token);
  parts.embedding = parts.options.backend->prepare_embedding(
      source.tensor(role_name(Role::embedding), ckpt::kOutsideLayers, c.vocab, c.hidden));
  parts.bytes.embedding = parts.embedding->resident_bytes;
  parts.final_norm = load.vector(Role::final_norm, c.hidden);
  parts.output = load.dense(c.tied_embeddings ? Role::embedding : Role::output, c.vocab, c.hidden);
}

}  // namespace

std::unique_ptr<MoeLayer> load_moe_layer(const ModelConfig& config, ckpt::WeightSource& source,
                                         const DecoderOptions& options, std::int64_t layer) {
  check_options(config, options);
  if (layer < 0 || layer >= static_cast<std::int64_t>(config.layers.size()) ||
      config.layers[static_cast<std::size_t>(layer)].moe() == nullptr) {
    fail(ErrorCode::usage, fmt::format("layer {} has no experts", layer),
         fmt::format("a MoE layer among 0..{}", config.layers.size() - 1));
  }
  std::int64_t bytes = 0;
  return load_moe(config.layers[static_cast<std::size_t>(layer)], source, options, layer, bytes).layer;
}

std::unique_ptr<Decoder> load_decoder(const ModelConfig& config, ckpt::WeightSource& source,
                                      const DecoderOptions& options, const ProgressSink& progress) {
  check_options(config, options);
  auto parts = std::make_unique<Decoder::Parts>();
  parts->config = config;
  parts->options = options;
  const auto layers = static_cast<std::int64_t>(config.layers.size());
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
