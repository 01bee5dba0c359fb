// Qwen2-MoE (Qwen1.5-MoE): biases on queries, keys and values, softmax routing, and one shared expert whose output a
// sigmoid gate scales.
#include <algorithm>

#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

BlockSpec dense_block(const Fields& f, const AttentionSpec& attention) {
  BlockSpec block;
  block.attention = attention;
  block.ffn = DenseFfnSpec{f.get_int({"intermediate_size"}, kDimRange), gated_activation_of(f)};
  return block;
}

BlockSpec expert_block(const Fields& f, const AttentionSpec& attention, std::int64_t hidden, std::int64_t experts) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"moe_intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = softmax_routing_of(f, experts);
  BlockSpec block;
  block.attention = attention;
  block.ffn = spec;
  SharedExpertSpec shared;
  shared.ffn = {f.get_int({"shared_expert_intermediate_size"}, kDimRange), spec.activation};
  shared.output_gate = true;
  block.shared = shared;
  return block;
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, qwen2_moe_family());
  AttentionSpec attention = grouped_attention_of(f, m.hidden);
  attention.qkv_bias = f.get_bool({"qkv_bias"}, true);
  refuse_field(f, "use_sliding_window", "a window that software disagrees on the layers of");
  const std::int64_t experts = f.get_int({"num_experts", "num_local_experts"}, {1, kCountRange.max});
  const std::int64_t sparse_step = f.get_int({"decoder_sparse_step"}, {1, kCountRange.max}, 1);
  const std::vector<std::int64_t> dense_layers = f.get_ints({"mlp_only_layers"}, kCountRange);
  const std::int64_t layers = layers_of(f);
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    const bool dense = listed || (i + 1) % sparse_step != 0;
    m.layers.push_back(dense ? dense_block(f, attention) : expert_block(f, attention, m.hidden, experts));
  }
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  map.experts = mlp_expert_names();
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  add_shared_names(map, "shared_expert");
  add_name(map, Role::shared_expert_gate, "model.layers.{L}.mlp.shared_expert_gate.weight");
  return map;
}

}  // namespace

Family qwen2_moe_family() { return {"qwen2_moe", {"Qwen2MoeForCausalLM"}, configure, names}; }

}  // namespace sluice::model
