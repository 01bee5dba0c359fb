// GLM-4.5 and 4.6: grouped-query attention that rotates half of each head, leading dense layers, grouped sigmoid
// routing with a correction bias, and shared experts. The layer for multi-token prediction after the last is left out.
#include <string>

#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

AttentionSpec attention_of(const Fields& f, std::int64_t hidden) {
  AttentionSpec a = grouped_attention_of(f, hidden, {.partial_rotary_factor = 0.5});
  a.qk_norm = f.get_bool({"use_qk_norm"}, false) ? QkNorm::per_head : QkNorm::none;
  a.qkv_bias = f.get_bool({"attention_bias"}, false);
  return a;
}

BlockSpec dense_block(const Fields& f, std::int64_t hidden) {
  BlockSpec block;
  block.attention = attention_of(f, hidden);
  block.ffn = DenseFfnSpec{f.get_int({"intermediate_size"}, kDimRange), gated_activation_of(f)};
  return block;
}

// Several shared experts are stored as one that is as wide as all of them.
BlockSpec expert_block(const Fields& f, std::int64_t hidden) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"moe_intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = sigmoid_routing_of(f, f.get_int({"n_routed_experts", "num_local_experts"}, {1, kCountRange.max}));
  BlockSpec block;
  block.attention = attention_of(f, hidden);
  block.ffn = spec;
  block.correction_bias = true;
  const std::int64_t shared = f.get_int({"n_shared_experts"}, kCountRange, 1);
  if (shared > 0) block.shared = SharedExpertSpec{{shared * spec.intermediate, spec.activation}};
  return block;
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, glm4_moe_family(), 1e-5);
  const std::int64_t layers = layers_of(f);
  const std::int64_t dense = f.get_int({"first_k_dense_replace"}, {0, layers}, 1);
  for (std::int64_t i = 0; i < layers; ++i) {
    m.layers.push_back(i < dense ? dense_block(f, m.hidden) : expert_block(f, m.hidden));
  }
  m.skipped.push_back({"model.layers." + std::to_string(layers) + ".*", "multi-token prediction"});
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig& m) {
  ckpt::NameMap map = decoder_names();
  map.experts = mlp_expert_names();
  add_qk_norm_names(map);
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  add_name(map, Role::correction_bias, "model.layers.{L}.mlp.gate.e_score_correction_bias");
  add_shared_names(map, "shared_experts");
  for (const SkippedTensors& skipped : m.skipped) map.ignored.push_back(skipped.pattern);
  return map;
}

}  // namespace

Family glm4_moe_family() { return {"glm4_moe", {"Glm4MoeForCausalLM"}, configure, names}; }

}  // namespace sluice::model
