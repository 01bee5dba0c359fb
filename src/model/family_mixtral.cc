// Mixtral: grouped-query attention with at most one sliding window for all layers, softmax routing that is always
// renormalised; w1 is gate, w3 is up, w2 is down.
#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

LayerSpec experts_of(const Fields& f, std::int64_t hidden) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = softmax_routing_of(f, f.get_int({"num_local_experts", "num_experts"}, {1, kCountRange.max}));
  spec.routing.renormalize = true;
  return spec;
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, mixtral_family(), 1e-5);
  BlockSpec block;
  block.attention = grouped_attention_of(f, m.hidden, {.theta = 1e6});
  block.attention.window =
      static_cast<std::int32_t>(f.get_int({"sliding_window"}, {0, (std::int64_t{1} << 31) - 1}, 0));
  block.ffn = experts_of(f, m.hidden);
  m.layers.assign(static_cast<std::size_t>(layers_of(f)), block);
  validate(m);
  return m;
}

// Files have block_sparse_moe; those saved from the modules of transformers 5 have mlp and stacked experts.
ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  add_name(map, Role::router, "model.layers.{L}.block_sparse_moe.gate.weight");
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  ckpt::ExpertNames published;
  published.gate = "model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight";
  published.up = "model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight";
  published.down = "model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight";
  map.experts = mlp_expert_names();
  map.experts.insert(map.experts.begin(), published);
  return map;
}

}  // namespace

Family mixtral_family() { return {"mixtral", {"MixtralForCausalLM"}, configure, names}; }

}  // namespace sluice::model
