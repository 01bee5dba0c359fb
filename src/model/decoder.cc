#include "model/decoder.h"

#include <algorithm>

#include "model/decoder_parts.h"

namespace sluice::model {
namespace {

// Activations of one step that live through all layers, in the workspace.
struct Activations {
  TensorView x;         // [T, H] f32, the residual stream
  TensorView h;         // [T, H] compute type, normalised
  TensorView h_f32;     // [T, H] f32, the same before rounding: what routers read
  TensorView ffn_out;   // [T, H] f32
  TensorView q;         // [T, widest query] f32
  TensorView k, v;      // [T, widest key] f32
  TensorView attn;      // [T, widest query] compute type
  TensorView gate, up;  // [T, widest dense I] f32
  TensorView act;       // [T, widest dense I] compute type
};

struct Widths {
  std::int64_t query = 0;
  std::int64_t kv = 0;
  std::int64_t dense = 0;  // 0 = no dense layer
};

Widths widest(const ModelConfig& config) {
  Widths w;
  for (const BlockSpec& block : config.layers) {
    w.query = std::max(w.query, block.attention.query_width());
    w.kv = std::max(w.kv, block.attention.kv_width());
    if (block.dense() != nullptr) w.dense = std::max(w.dense, block.dense()->intermediate);
  }
  return w;
}

// Calls make(dtype, cols) for every tensor of Activations, so that sizing and taking can't differ.
template <class Make>
Activations make_activations(const ModelConfig& config, DType compute, Make make) {
  const Widths w = widest(config);
  Activations a;
  a.x = make(DType::f32, config.hidden);
  a.h = make(compute, config.hidden);
  a.h_f32 = make(DType::f32, config.hidden);
  a.ffn_out = make(DType::f32, config.hidden);
  a.q = make(DType::f32, w.query);
  a.k = make(DType::f32, w.kv);
  a.v = make(DType::f32, w.kv);
  a.attn = make(compute, w.query);
  if (w.dense > 0) {
    a.gate = make(DType::f32, w.dense);
    a.up = make(DType::f32, w.dense);
    a.act = make(compute, w.dense);
  }
  return a;
}

// The first `cols` columns of every row as a dense view of the same memory.
TensorView narrow(const TensorView& v, std::int64_t cols) { return dense_view(v.data, v.dtype, v.rows, cols); }

const float* floats(const Buffer& b) { return b.as<float>(); }

// One forward pass: what every stage needs.
struct Pass {
  const Decoder::Parts& parts;
  const ForwardArgs& args;
  Activations a;
  Workspace& workspace;
  Stream stream;

  Backend& backend() const { return *parts.options.backend; }
  void norm(const ConstTensorView& x, const Buffer& weight, const TensorView& f32, const TensorView& compute) const {
    backend().rms_norm({x, floats(weight), parts.config.norm_epsilon, f32, compute}, stream);
  }
  void linear(const ConstTensorView& x, const DenseWeight& weight, const Buffer& bias, const TensorView& y,
              bool accumulate = false) const {
    backend().linear({x, &weight, floats(bias), y, accumulate}, workspace, stream);
  }
};

// Normalises every head alone, in place: [T, heads * d] seen as [T * heads, d].
void norm_heads(const Pass& p, const TensorView& x, std::int32_t heads, std::int32_t head_dim, const Buffer& weight) {
  const TensorView rows = dense_view(x.data, x.dtype, x.rows * heads, head_dim);
  p.norm(rows, weight, rows, {});
}

void project_qkv(const Pass& p, const AttentionSpec& spec, const AttentionWeights& w, const TensorView& q,
                 const TensorView& k, const TensorView& v) {
  p.linear(p.a.h, *w.q, w.q_bias, q);
  p.linear(p.a.h, *w.k, w.k_bias, k);
  p.linear(p.a.h, *w.v, w.v_bias, v);
  if (spec.qk_norm == QkNorm::per_head) {
    norm_heads(p, q, spec.heads, spec.head_dim, w.q_norm);
    norm_heads(p, k, spec.kv_heads, spec.head_dim, w.k_norm);
  } else if (spec.qk_norm == QkNorm::whole_width) {
    p.norm(q, w.q_norm, q, {});
    p.norm(k, w.k_norm, k, {});
  }
  const std::int32_t* positions = p.args.batch.positions;
  p.backend().rope({q, spec.heads, spec.head_dim, w.rope, spec.rope.interleaved, positions}, p.stream);
  p.backend().rope({k, spec.kv_heads, spec.head_dim, w.rope, spec.rope.interleaved, positions}, p.stream);
}

// x += o(attention(qkv(norm(x)))).
void attention_block(const Pass& p, const AttentionSpec& spec, const AttentionWeights& w) {
  const TensorView q = narrow(p.a.q, spec.query_width());
  const TensorView k = narrow(p.a.k, spec.kv_width());
  const TensorView v = narrow(p.a.v, spec.kv_width());
  const TensorView out = narrow(p.a.attn, spec.query_width());
  KvCache* cache = p.args.kv->groups[w.kv_group].get();
  p.norm(p.a.x, w.norm, {}, p.a.h);
  project_qkv(p, spec, w, q, k, v);
  p.backend().kv_store({k, v, cache, w.kv_layer, &p.args.batch}, p.stream);
  AttentionArgs attention;
  attention.q = q;
  attention.cache = cache;
  attention.layer = w.kv_layer;
  attention.heads = spec.heads;
  attention.scale = spec.scale;
  attention.window = spec.window;
  attention.sinks = floats(w.sinks);
  attention.batch = &p.args.batch;
  attention.out = out;
  p.backend().attention(attention, p.workspace, p.stream);
  p.linear(out, *w.o, w.o_bias, p.a.x, true);
}

// x += down(act(gate(h), up(h))).
void dense_block(const Pass& p, const DenseFfnSpec& spec, const DenseFfnWeights& w) {
  const TensorView up = narrow(p.a.up, spec.intermediate);
  const TensorView gate = w.gate ? narrow(p.a.gate, spec.intermediate) : TensorView{};
  const TensorView act = narrow(p.a.act, spec.intermediate);
  if (w.gate) p.linear(p.a.h, *w.gate, {}, gate);
  p.linear(p.a.h, *w.up, {}, up);
  p.backend().activate(spec.activation, gate, up, act, p.stream);
  p.linear(act, *w.down, {}, p.a.x, true);
}

// x += moe(h). `moe_index` counts MoE layers.
void moe_block(const Pass& p, const MoeLayer& layer, std::int64_t moe_index) {
  MoeInput input;
  input.hidden = p.a.h;
  input.hidden_f32 = p.a.h_f32;
  input.token_ids = p.args.batch.token_ids;
  input.stages = p.args.stages;
  Workspace::Scope scope(p.workspace);
  const MoeRoutes routes = layer.forward(input, p.a.ffn_out, p.workspace, p.stream);
  p.backend().add(p.a.x, p.a.ffn_out, p.stream);
  if (p.args.routes == nullptr) return;
  const std::int64_t count = p.args.batch.tokens * layer.problem().layer.routing.slots();
  p.backend().copy_to_host(p.args.routes->ids + moe_index * p.args.routes->layer_stride, routes.ids,
                           static_cast<std::size_t>(count) * sizeof(std::int32_t), p.stream);
}

// logits [n, V] of the wanted rows.
void output_block(const Pass& p) {
  const TensorView& logits = p.args.logits;
  if (!logits || logits.rows == 0) return;
  const TensorView rows = dense_view(p.a.ffn_out.data, DType::f32, logits.rows, p.parts.config.hidden);
  const TensorView h = dense_view(p.a.h.data, p.a.h.dtype, logits.rows, p.parts.config.hidden);
  p.backend().gather_rows(p.a.x, p.args.logit_rows, rows, p.stream);
  p.norm(rows, p.parts.final_norm, {}, h);
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
  make_activations(config(), compute(), [&](DType type, std::int64_t cols) {
    bytes += Workspace::rounded_bytes(static_cast<std::size_t>(dtype_bytes(type, tokens * cols)));
    return TensorView{};
  });
  const Widths w = widest(config());
  const std::int64_t cols = std::max({config().hidden, config().vocab, w.query, w.dense});
  std::size_t scratch = backend().workspace_bytes(tokens, context, cols);
  for (const BlockWeights& block : parts_->blocks) {
    if (block.moe) scratch = std::max(scratch, block.moe->workspace_bytes(tokens));
  }
  return bytes + scratch;
}

void Decoder::forward(const ForwardArgs& args, Workspace& workspace, Stream stream) const {
  Workspace::Scope scope(workspace);
  const std::int64_t tokens = args.batch.tokens;
  Activations a = make_activations(config(), compute(), [&](DType type, std::int64_t cols) {
    void* data = workspace.take_bytes(static_cast<std::size_t>(dtype_bytes(type, tokens * cols)));
    return dense_view(data, type, tokens, cols);
  });
  const Pass p{*parts_, args, a, workspace, stream};
  backend().embed(*parts_->embedding, args.batch.token_ids, a.x, stream);
  std::int64_t moe_index = 0;
  for (std::size_t i = 0; i < parts_->blocks.size(); ++i) {
    const BlockSpec& spec = config().layers[i];
    const BlockWeights& w = parts_->blocks[i];
    attention_block(p, spec.attention, w.attention);
    p.norm(a.x, w.ffn_norm, w.moe ? a.h_f32 : TensorView{}, a.h);
    if (w.moe) {
      moe_block(p, *w.moe, moe_index++);
    } else {
      dense_block(p, *spec.dense(), w.dense);
    }
  }
  output_block(p);
}

}  // namespace sluice::model
