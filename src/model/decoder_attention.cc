#include "model/decoder_pass.h"

namespace sluice::model {
namespace {

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
  p.backend().rope({q, spec.heads, spec.head_dim, 0, w.rope, spec.rope.interleaved, positions}, p.stream);
  p.backend().rope({k, spec.kv_heads, spec.head_dim, 0, w.rope, spec.rope.interleaved, positions}, p.stream);
}

// Attention of the step's queries over the cache of one layer, after what it adds is stored.
void attend(const Pass& p, const AttentionSpec& spec, const AttentionWeights& w, const TensorView& q,
            const TensorView& out) {
  AttentionArgs attention;
  attention.q = q;
  attention.cache = p.args.kv->groups[w.kv_group].get();
  attention.layer = w.kv_layer;
  attention.heads = spec.heads;
  attention.scale = spec.scale;
  attention.window = spec.window;
  attention.sinks = floats(w.sinks);
  attention.batch = &p.args.batch;
  attention.out = out;
  p.backend().attention(attention, p.workspace, p.stream);
}

void store(const Pass& p, const AttentionWeights& w, const TensorView& k, const TensorView& v) {
  p.backend().kv_store({k, v, p.args.kv->groups[w.kv_group].get(), w.kv_layer, &p.args.batch}, p.stream);
}

void grouped_query(const Pass& p, const AttentionSpec& spec, const AttentionWeights& w, const TensorView& out) {
  const TensorView q = narrow(p.a.q, spec.query_width());
  const TensorView k = narrow(p.a.k, spec.kv_width());
  const TensorView v = narrow(p.a.v, spec.kv_width());
  project_qkv(p, spec, w, q, k, v);
  store(p, w, k, v);
  attend(p, spec, w, q, out);
}

// The first `cols` columns of each row, where the rows stay as far apart as they are.
TensorView leading(TensorView v, std::int64_t cols) {
  v.cols = cols;
  return v;
}

// [T, heads * (nope + rope)], the rope columns not yet rotated.
void project_latent_query(const Pass& p, const MlaSpec& m, const LatentWeights& w, const TensorView& q) {
  if (m.q_lora_rank == 0) return p.linear(p.a.h, *w.q, {}, q);
  const TensorView wide = narrow(p.a.q_absorbed, m.q_lora_rank);  // free until the query is absorbed
  const TensorView latent = narrow(p.a.q_latent, m.q_lora_rank);
  p.linear(p.a.h, *w.q_a, {}, wide);
  p.norm(wide, w.q_a_norm, m.norm_epsilon, {}, latent);
  p.linear(latent, *w.q_b, {}, q);
}

// The absorbed form, for prompts and single tokens alike, so that a row's bits do not depend on the batch: a head's
// query goes through its key rows of kv_b into the space of the latent, scores and weighted sums are taken over the
// latent itself, which is all that the cache holds, and the head's value rows of kv_b bring the sum back.
void latent(const Pass& p, const AttentionSpec& spec, const AttentionWeights& w, const TensorView& out) {
  const MlaSpec& m = *spec.mla;
  const TensorView q = narrow(p.a.q, spec.query_width());
  const TensorView row = narrow(p.a.k, m.latent_width());
  const TensorView absorbed = narrow(p.a.q_absorbed, static_cast<std::int64_t>(spec.heads) * m.latent_width());
  const TensorView sum = narrow(p.a.attn_latent, static_cast<std::int64_t>(spec.heads) * m.kv_lora_rank);
  const std::int32_t* positions = p.args.batch.positions;
  project_latent_query(p, m, w.latent, q);
  p.backend().rope({q, spec.heads, spec.head_dim, m.nope_dim, w.rope, spec.rope.interleaved, positions}, p.stream);
  p.linear(p.a.h, *w.latent.kv_a, {}, row);
  p.norm(leading(row, m.kv_lora_rank), w.latent.kv_a_norm, m.norm_epsilon, leading(row, m.kv_lora_rank), {});
  p.backend().rope({row, 1, m.latent_width(), m.kv_lora_rank, w.rope, spec.rope.interleaved, positions}, p.stream);
  store(p, w, row, {});
  p.backend().head_linear({q, w.latent.keys.get(), absorbed, m.rope_dim}, p.workspace, p.stream);
  attend(p, spec, w, absorbed, sum);
  p.backend().head_linear({sum, w.latent.values.get(), out, 0}, p.workspace, p.stream);
}

}  // namespace

void attention_block(const Pass& p, const AttentionWeights& w) {
  const AttentionSpec& spec = w.spec;
  const TensorView out = narrow(p.a.attn, spec.output_width());
  p.norm(p.a.x, w.norm, {}, p.a.h);
  if (spec.mla) {
    latent(p, spec, w, out);
  } else {
    grouped_query(p, spec, w, out);
  }
  p.add_to_residual(out, *w.o, w.o_bias, w.partial);
}

}  // namespace sluice::model
