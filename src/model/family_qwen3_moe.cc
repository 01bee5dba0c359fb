// Qwen3-MoE: grouped-query attention with one norm a query and key head, softmax routing, no shared expert.
#include <algorithm>

#include "core/error.h"
#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

void refuse_sliding_window(const Fields& f) {
  if (!f.get_bool({"use_sliding_window"}, false)) return;
  fail(ErrorCode::unsupported, f.origin() + ": use_sliding_window: true", "false",
       "software disagrees on which layers of this family it concerns; set it to false to attend to everything");
}

AttentionSpec attention_of(const Fields& f, std::int64_t hidden) {
  AttentionSpec a = grouped_attention_of(f, hidden);
  a.qk_norm = QkNorm::per_head;
  a.qkv_bias = a.output_bias = f.get_bool({"attention_bias"}, false);
  refuse_sliding_window(f);
  return a;
}

LayerSpec experts_of(const Fields& f, std::int64_t hidden, std::int64_t experts) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"moe_intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = softmax_routing_of(f, experts);
  return spec;
}

// Every decoder_sparse_step-th layer has experts, except those listed in mlp_only_layers.
bool has_experts(std::int64_t layer, std::int64_t sparse_step, const std::vector<std::int64_t>& dense_layers) {
  return (layer + 1) % sparse_step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, qwen3_moe_family());
  const AttentionSpec attention = attention_of(f, m.hidden);
  const std::int64_t layers = layers_of(f);
  const std::int64_t experts = f.get_int({"num_experts", "num_local_experts"}, kCountRange);
  const std::int64_t sparse_step = f.get_int({"decoder_sparse_step"}, {1, kCountRange.max}, 1);
  const std::vector<std::int64_t> dense_layers = f.get_ints({"mlp_only_layers"}, kCountRange);
  for (std::int64_t i = 0; i < layers; ++i) {
    BlockSpec block;
    block.attention = attention;
    if (experts > 0 && has_experts(i, sparse_step, dense_layers)) {
      block.ffn = experts_of(f, m.hidden, experts);
    } else {
      block.ffn = DenseFfnSpec{f.get_int({"intermediate_size"}, kDimRange), gated_activation_of(f)};
    }
    m.layers.push_back(block);
  }
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  map.experts = mlp_expert_names();
  add_qk_norm_names(map);
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  return map;
}

}  // namespace

Family qwen3_moe_family() { return {"qwen3_moe", {"Qwen3MoeForCausalLM"}, configure, names}; }

}  // namespace sluice::model
