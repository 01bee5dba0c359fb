#include <utility>
#include <vector>

#include "model/layer_loader.h"
#include "moe/weight_slices.h"

namespace sluice::model {
namespace {

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

}  // namespace

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
  if (a.output_bias && part.heads.begin != 0) load.leave(Role::o_bias, 1, hidden);
  if (a.sinks) w.sinks = load.vector(Role::sinks, {a.heads, part.heads});
  return w;
}

}  // namespace sluice::model
