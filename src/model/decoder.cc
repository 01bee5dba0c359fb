#include "model/decoder.h"

#include <algorithm>

#include "model/decoder_pass.h"

namespace sluice::model {
namespace {

// Rows of logits that are gathered over ranks at a time.
constexpr std::int64_t kGatheredRows = 64;

struct Widths {
  std::int64_t query = 0;
  std::int64_t kv = 0;
  std::int64_t output = 0;
  std::int64_t q_latent = 0, q_absorbed = 0, attn_latent = 0;  // 0 = no latent attention
  std::int64_t dense = 0;                                      // 0 = no dense layer
};

void widen_latent(const AttentionSpec& a, Widths& w) {
  const std::int64_t heads = a.heads;
  w.q_latent = std::max<std::int64_t>(w.q_latent, a.mla->q_lora_rank);
  w.q_absorbed = std::max({w.q_absorbed, w.q_latent, heads * a.mla->latent_width()});
  w.attn_latent = std::max(w.attn_latent, heads * a.mla->kv_lora_rank);
}

Widths widest(const std::vector<BlockWeights>& blocks) {
  Widths w;
  for (const BlockWeights& block : blocks) {
    const AttentionSpec& attention = block.attention.spec;
    w.query = std::max(w.query, attention.query_width());
    w.kv = std::max(w.kv, attention.kv_width());
    w.output = std::max(w.output, attention.output_width());
    if (attention.mla) widen_latent(attention, w);
    if (!block.moe) w.dense = std::max(w.dense, block.dense.spec.intermediate);
  }
  return w;
}

// Calls make(dtype, cols) for every tensor of Activations, so that sizing and taking can't differ.
template <class Make>
Activations make_activations(const Decoder::Parts& parts, Make make) {
  const Widths w = widest(parts.blocks);
  const std::int64_t hidden = parts.config.hidden;
  const DType compute = parts.options.compute;
  Activations a;
  a.x = make(DType::f32, hidden);
  a.h = make(compute, hidden);
  a.h_f32 = make(DType::f32, hidden);
  a.ffn_out = make(DType::f32, hidden);
  a.q = make(DType::f32, w.query);
  a.k = make(DType::f32, w.kv);
  a.v = make(DType::f32, w.kv);
  a.attn = make(compute, w.output);
  if (w.q_absorbed > 0) {
    a.q_latent = make(compute, w.q_latent);
    a.q_absorbed = make(DType::f32, w.q_absorbed);
    a.attn_latent = make(compute, w.attn_latent);
  }
  if (w.dense > 0) {
    a.gate = make(DType::f32, w.dense);
    a.up = make(DType::f32, w.dense);
    a.act = make(compute, w.dense);
  }
  return a;
}

// x += down(act(gate(h), up(h))).
void dense_block(const Pass& p, const DenseFfnWeights& w) {
  const DenseFfnSpec& spec = w.spec;
  const TensorView up = narrow(p.a.up, spec.intermediate);
  const TensorView gate = w.gate ? narrow(p.a.gate, spec.intermediate) : TensorView{};
  const TensorView act = narrow(p.a.act, spec.intermediate);
  if (w.gate) p.linear(p.a.h, *w.gate, {}, gate);
  p.linear(p.a.h, *w.up, {}, up);
  p.backend().activate(spec.activation, gate, up, act, p.stream);
  p.add_to_residual(act, *w.down, {}, w.partial);
}

// x += moe(h). `moe_index` counts MoE layers.
void moe_block(const Pass& p, const MoeLayer& layer, std::int64_t moe_index) {
  MoeInput input;
  input.hidden = p.a.h;
  input.hidden_f32 = p.a.h_f32;
  input.token_ids = p.args.batch.token_ids;
  input.stages = p.args.stages;
  input.trace = p.parts.options.trace;
  Workspace::Scope scope(p.workspace);
  const MoeRoutes routes = layer.forward(input, p.a.ffn_out, p.workspace, p.stream);
  p.backend().add(p.a.x, p.a.ffn_out, p.stream);
  if (p.args.routes == nullptr) return;
  const std::int64_t count = p.args.batch.tokens * layer.problem().layer.routing.slots();
  p.backend().copy_to_host(p.args.routes->ids + moe_index * p.args.routes->layer_stride, routes.ids,
                           static_cast<std::size_t>(count) * sizeof(std::int32_t), p.stream);
}

// One layer: x += attention, x += FFN.
void block(const Pass& p, std::int64_t layer, std::int64_t moe_index) {
  const BlockWeights& w = p.parts.blocks[static_cast<std::size_t>(layer)];
  Trace* const trace = p.parts.options.trace;
  {
    const TraceSpan span(trace, "attention", "layer", layer);
    attention_block(p, w.attention);
  }
  const TraceSpan span(trace, w.moe ? "moe" : "ffn", "layer", layer);
  p.norm(p.a.x, w.ffn_norm, w.moe ? p.a.h_f32 : TensorView{}, p.a.h);
  if (w.moe) {
    moe_block(p, *w.moe, moe_index);
  } else {
    dense_block(p, w.dense);
  }
}

TensorView rows_from(const TensorView& v, std::int64_t first, std::int64_t rows) {
  if (!v) return {};
  void* const data = static_cast<std::byte*>(v.data) + dtype_bytes(v.dtype, first * v.row_stride);
  return {data, v.dtype, rows, v.cols, v.row_stride};
}

// x = rows of the table; where it is cut, each rank looks up its columns of them.
void embed_block(const Pass& p) {
  const TensorView& x = p.a.x;
  RankColumns* const columns = p.parts.embedded.get();
  const TensorView to = columns == nullptr ? x : columns->own_part(p.a.ffn_out);
  p.backend().embed(*p.parts.embedding, p.args.batch.token_ids, to, p.stream);
  if (columns != nullptr) columns->gather(p.a.ffn_out, x, p.stream);
}

// Logits of normalised rows h [n, H], of which each rank has a part: in portions, which bound what lies beside them.
void gathered_logits(const Pass& p, const TensorView& h) {
  for (std::int64_t first = 0; first < h.rows; first += kGatheredRows) {
    const Workspace::Scope scope(p.workspace);
    const std::int64_t rows = std::min(kGatheredRows, h.rows - first), vocab = p.parts.config.vocab;
    const TensorView memory = dense_view(p.workspace.take<float>(rows * vocab), DType::f32, rows, vocab);
    p.linear(rows_from(h, first, rows), *p.parts.output, {}, p.parts.logits->own_part(memory));
    p.parts.logits->gather(memory, rows_from(p.args.logits, first, rows), p.stream);
  }
}

// logits [n, V] of the wanted rows.
void output_block(const Pass& p) {
  const TensorView& logits = p.args.logits;
  if (logits.rows == 0 || (!logits && !p.parts.logits)) return;
  const TensorView rows = dense_view(p.a.ffn_out.data, DType::f32, logits.rows, p.parts.config.hidden);
  const TensorView h = dense_view(p.a.h.data, p.a.h.dtype, logits.rows, p.parts.config.hidden);
  p.backend().gather_rows(p.a.x, p.args.logit_rows, rows, p.stream);
  p.norm(rows, p.parts.final_norm, {}, h);
  if (p.parts.logits) return gathered_logits(p, h);
  p.linear(h, *p.parts.output, {}, logits);
}

}  // namespace

Decoder::Decoder(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return parts_->config; }
Backend& Decoder::backend() const { return *parts_->options.backend; }
DType Decoder::compute() const { return parts_->options.compute; }
std::int64_t Decoder::max_positions() const { return parts_->options.max_positions; }
WeightBytes Decoder::weight_bytes() const { return parts_->bytes; }
const std::vector<KvSpec>& Decoder::kv_specs() const { return parts_->kv_specs; }

const MoeLayer* Decoder::moe_layer(std::int64_t layer) const {
  return parts_->blocks.at(static_cast<std::size_t>(layer)).moe.get();
}

std::int64_t Decoder::expert_bytes(std::int64_t layer) const {
  return parts_->blocks.at(static_cast<std::size_t>(layer)).expert_bytes;
}

const Placement* Decoder::placement(std::int64_t layer) const {
  return parts_->blocks.at(static_cast<std::size_t>(layer)).placement.get();
}

const SlotLoad* Decoder::slot_load(std::int64_t layer) const {
  return placement(layer) == nullptr ? nullptr : &parts_->loads.at(static_cast<std::size_t>(layer));
}

bool Decoder::quantized_rows(std::int64_t layer) const {
  return parts_->blocks.at(static_cast<std::size_t>(layer)).quantized_rows;
}

const RankPlan& Decoder::plan() const { return parts_->options.plan; }

Trace* Decoder::trace() const { return parts_->options.trace; }

std::int64_t Decoder::kv_bytes_per_token() const {
  std::int64_t bytes = 0;
  for (const KvSpec& spec : parts_->kv_specs) bytes += spec.bytes_per_token();
  return bytes;
}

KvState Decoder::make_kv(std::int64_t blocks) const {
  KvState state;
  for (const KvSpec& spec : parts_->kv_specs) state.groups.push_back(backend().make_kv(spec, blocks));
  return state;
}

std::size_t Decoder::workspace_bytes(std::int64_t tokens, std::int64_t context) const {
  std::size_t bytes = 0;
  make_activations(*parts_, [&](DType type, std::int64_t cols) {
    bytes += Workspace::rounded_bytes(static_cast<std::size_t>(dtype_bytes(type, tokens * cols)));
    return TensorView{};
  });
  const Widths w = widest(parts_->blocks);
  const std::int64_t cols = std::max({config().hidden, config().vocab, w.query, w.output, w.q_absorbed, w.dense});
  std::size_t scratch = backend().workspace_bytes(tokens, context, cols);
  if (parts_->logits) {
    const std::int64_t gathered = std::min(tokens, kGatheredRows) * config().vocab;
    scratch += Workspace::rounded_bytes(static_cast<std::size_t>(gathered) * sizeof(float));
  }
  for (const BlockWeights& block : parts_->blocks) {
    if (block.moe) scratch = std::max(scratch, block.moe->workspace_bytes(tokens));
  }
  return bytes + scratch;
}

void Decoder::forward(const ForwardArgs& args, Workspace& workspace, Stream stream) const {
  Workspace::Scope scope(workspace);
  const std::int64_t tokens = args.batch.tokens;
  Activations a = make_activations(*parts_, [&](DType type, std::int64_t cols) {
    void* data = workspace.take_bytes(static_cast<std::size_t>(dtype_bytes(type, tokens * cols)));
    return dense_view(data, type, tokens, cols);
  });
  const Pass p{*parts_, args, a, workspace, stream};
  {
    const TraceSpan span(trace(), "embed");
    embed_block(p);
  }
  std::int64_t moe_index = 0;
  for (std::size_t layer = 0; layer < parts_->blocks.size(); ++layer) {
    block(p, static_cast<std::int64_t>(layer), moe_index);
    moe_index += parts_->blocks[layer].moe ? 1 : 0;
  }
  const TraceSpan span(trace(), "output", "rows", args.logits.rows);
  output_block(p);
}

}  // namespace sluice::model
