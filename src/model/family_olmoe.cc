// OLMoE: query and key norms over all heads together, softmax routing whose weights are not renormalised (they do not
// add up to 1), no shared expert.
#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, olmoe_family(), 1e-5);
  refuse_field(f, "clip_qkv", "clamping of queries, keys and values");
  BlockSpec block;
  block.attention = grouped_attention_of(f, m.hidden);
  block.attention.qk_norm = QkNorm::whole_width;
  block.attention.qkv_bias = block.attention.output_bias = f.get_bool({"attention_bias"}, false);
  LayerSpec spec;
  spec.hidden = m.hidden;
  spec.intermediate = f.get_int({"intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = softmax_routing_of(f, f.get_int({"num_experts", "num_local_experts"}, {1, kCountRange.max}));
  block.ffn = spec;
  m.layers.assign(static_cast<std::size_t>(layers_of(f)), block);
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  map.experts = mlp_expert_names();
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  add_qk_norm_names(map);
  return map;
}

}  // namespace

Family olmoe_family() { return {"olmoe", {"OlmoeForCausalLM"}, configure, names}; }

}  // namespace sluice::model
