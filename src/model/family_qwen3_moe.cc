// Qwen3-MoE: grouped-query attention with one norm a query and key head, softmax routing, no shared expert.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "model/family.h"
#include "model/family_fields.h"
#include "model/roles.h"

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
  AttentionSpec a;
  a.heads = static_cast<std::int32_t>(f.get_int({"num_attention_heads"}, {1, kCountRange.max}));
  a.kv_heads = static_cast<std::int32_t>(f.get_int({"num_key_value_heads"}, {1, kCountRange.max}, a.heads));
  a.head_dim = static_cast<std::int32_t>(f.get_int({"head_dim"}, kDimRange, hidden / a.heads));
  a.qk_norm = QkNorm::per_head;
  a.qkv_bias = a.output_bias = f.get_bool({"attention_bias"}, false);
  a.rope = rope_of(f, a.head_dim);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  refuse_sliding_window(f);
  return a;
}

LayerSpec experts_of(const Fields& f, std::int64_t hidden, std::int64_t experts) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"moe_intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing.method = RoutingMethod::score_topk;
  spec.routing.scoring = Scoring::softmax;
  spec.routing.experts = static_cast<std::int32_t>(experts);
  spec.routing.top_k = static_cast<std::int32_t>(f.get_int({"num_experts_per_tok"}, {1, experts}));
  spec.routing.renormalize = f.get_bool({"norm_topk_prob"}, false);
  return spec;
}

// Every decoder_sparse_step-th layer has experts, except those listed in mlp_only_layers.
bool has_experts(std::int64_t layer, std::int64_t sparse_step, const std::vector<std::int64_t>& dense_layers) {
  return (layer + 1) % sparse_step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, "qwen3_moe");
  const AttentionSpec attention = attention_of(f, m.hidden);
  const std::int64_t layers = f.get_int({"num_hidden_layers"}, {1, kCountRange.max});
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

// Transformers writes one tensor an expert; files saved from its fused modules hold them stacked.
std::vector<ckpt::ExpertNames> expert_names() {
  using ckpt::ExpertNames;
  ExpertNames single;
  single.gate = "model.layers.{L}.mlp.experts.{E}.gate_proj.weight";
  single.up = "model.layers.{L}.mlp.experts.{E}.up_proj.weight";
  single.down = "model.layers.{L}.mlp.experts.{E}.down_proj.weight";
  ExpertNames stacked;
  stacked.files = ExpertNames::Files::stacked;
  stacked.gate_up_order = ExpertNames::GateUp::gate_then_up;
  stacked.gate_up = "model.layers.{L}.mlp.experts.gate_up_proj";
  stacked.down = "model.layers.{L}.mlp.experts.down_proj";
  return {single, stacked};
}

ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  map.experts = expert_names();
  map.tensors.emplace_back(role_name(Role::q_norm), "model.layers.{L}.self_attn.q_norm.weight");
  map.tensors.emplace_back(role_name(Role::k_norm), "model.layers.{L}.self_attn.k_norm.weight");
  map.tensors.emplace_back(role_name(Role::router), "model.layers.{L}.mlp.gate.weight");
  return map;
}

}  // namespace

Family qwen3_moe_family() { return {"qwen3_moe", {"Qwen3MoeForCausalLM"}, configure, names}; }

}  // namespace sluice::model
