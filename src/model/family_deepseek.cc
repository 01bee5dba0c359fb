// DeepSeek-V2, V3, R1 and Kimi-K2: latent attention, the first layers dense, grouped routing, shared experts.
#include <cmath>
#include <string>

#include "core/error.h"
#include "model/family.h"
#include "model/family_fields.h"
#include "model/roles.h"
#include "model/rope.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

std::int32_t dim(const Fields& f, std::string_view key) {
  return static_cast<std::int32_t>(f.get_int({key}, kDimRange));
}

// mscale_all_dim of YaRN belongs to the softmax scale; `mscale` / `mscale_all_dim`, to cos and sin (rope.h).
float softmax_scale(const AttentionSpec& a) {
  const ckpt::RopeConfig& rope = a.rope.config;
  const double all_dim = rope.type == ckpt::RopeType::yarn ? rope.mscale_all_dim.value_or(0.0) : 0.0;
  const double mscale = all_dim != 0.0 ? yarn_mscale(rope.factor, all_dim) : 1.0;
  return static_cast<float>(mscale * mscale / std::sqrt(static_cast<double>(a.head_dim)));
}

AttentionSpec attention_of(const Fields& f) {
  if (f.get_bool({"attention_bias"}, false)) {
    fail(ErrorCode::unsupported, f.origin() + ": attention_bias: true", "false",
         "not supported yet: biases of latent attention, which no published model has");
  }
  MlaSpec m;
  m.q_lora_rank = static_cast<std::int32_t>(f.get_int({"q_lora_rank"}, {0, kDimRange.max}, 0));
  m.kv_lora_rank = dim(f, "kv_lora_rank");
  m.nope_dim = dim(f, "qk_nope_head_dim");
  m.rope_dim = dim(f, "qk_rope_head_dim");
  m.v_dim = dim(f, "v_head_dim");
  AttentionSpec a;
  a.heads = static_cast<std::int32_t>(f.get_int({"num_attention_heads"}, {1, kCountRange.max}));
  a.head_dim = m.nope_dim + m.rope_dim;
  a.mla = m;
  a.rope = rope_of(f, m.rope_dim);
  a.rope.interleaved = f.get_bool({"rope_interleave"}, true);
  a.scale = softmax_scale(a);
  return a;
}

Scoring scoring_of(const Fields& f, bool v2) {
  const std::string name = f.get_string({"scoring_func"}, v2 ? "softmax" : "sigmoid");
  if (name == "softmax") return Scoring::softmax;
  if (name == "sigmoid") return Scoring::sigmoid;
  fail(ErrorCode::unsupported, f.origin() + ": scoring_func: \"" + name + "\"", "softmax or sigmoid");
}

RoutingMethod method_of(const Fields& f, bool v2) {
  const std::string name = f.get_string({"topk_method"}, v2 ? "greedy" : "noaux_tc");
  if (name == "greedy") return RoutingMethod::score_topk;
  if (name == "group_limited_greedy") return RoutingMethod::grouped_max;
  if (name == "noaux_tc") return RoutingMethod::grouped_top2;
  fail(ErrorCode::unsupported, f.origin() + ": topk_method: \"" + name + "\"",
       "greedy, group_limited_greedy, noaux_tc");
}

RoutingSpec routing_of(const Fields& f, bool v2, std::int64_t experts) {
  RoutingSpec r = sigmoid_routing_of(f, experts, v2 ? GroupDefaults{} : GroupDefaults{8, 4, 2.5});
  r.method = method_of(f, v2);
  r.scoring = scoring_of(f, v2);
  if (r.method == RoutingMethod::score_topk) r.groups = r.top_groups = 1;
  r.renormalize = f.get_bool({"norm_topk_prob"}, !v2);
  if (v2 && r.renormalize) {
    fail(ErrorCode::unsupported, f.origin() + ": norm_topk_prob: true", "false",
         "software disagrees on what it means in DeepSeek-V2; no published model has it");
  }
  return r;
}

BlockSpec expert_block(const Fields& f, bool v2, std::int64_t hidden, std::int64_t experts) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"moe_intermediate_size"}, kDimRange);
  spec.activation = gated_activation_of(f);
  spec.routing = routing_of(f, v2, experts);
  BlockSpec block;
  block.correction_bias = spec.routing.method == RoutingMethod::grouped_top2;
  const std::int64_t shared = f.get_int({"n_shared_experts"}, kCountRange, v2 ? 0 : 1);
  if (shared > 0) block.shared = SharedExpertSpec{{shared * spec.intermediate, spec.activation}, false};
  block.ffn = spec;
  return block;
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, deepseek_family());
  const bool v2 = m.architecture == "DeepseekV2ForCausalLM" || m.architecture == "deepseek_v2";
  if (v2) m.family = "deepseek_v2";
  refuse_field(f, "mlp_bias", "biases of dense and shared experts");
  const AttentionSpec attention = attention_of(f);
  const std::int64_t layers = layers_of(f);
  const std::int64_t experts = f.get_int({"n_routed_experts", "num_local_experts"}, kCountRange, 0);
  const std::int64_t dense = f.get_int({"first_k_dense_replace"}, kCountRange, v2 ? 0 : 3);
  const std::int64_t every = f.get_int({"moe_layer_freq"}, {1, kCountRange.max}, 1);
  for (std::int64_t i = 0; i < layers; ++i) {
    BlockSpec block;
    if (experts > 0 && i >= dense && i % every == 0) {
      block = expert_block(f, v2, m.hidden, experts);
    } else {
      block.ffn = DenseFfnSpec{f.get_int({"intermediate_size"}, kDimRange), gated_activation_of(f)};
    }
    block.attention = attention;
    m.layers.push_back(block);
  }
  const std::int64_t predicted = f.get_int({"num_nextn_predict_layers"}, kCountRange, 0);
  for (std::int64_t i = layers; i < layers + predicted; ++i) {
    m.skipped.push_back({"model.layers." + std::to_string(i) + ".*", "multi-token prediction"});
  }
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig& m) {
  ckpt::NameMap map = decoder_names();
  map.experts = mlp_expert_names();
  add_name(map, Role::q_a, "model.layers.{L}.self_attn.q_a_proj.weight");
  add_name(map, Role::q_a_norm, "model.layers.{L}.self_attn.q_a_layernorm.weight");
  add_name(map, Role::q_b, "model.layers.{L}.self_attn.q_b_proj.weight");
  add_name(map, Role::kv_a, "model.layers.{L}.self_attn.kv_a_proj_with_mqa.weight");
  add_name(map, Role::kv_a_norm, "model.layers.{L}.self_attn.kv_a_layernorm.weight");
  add_name(map, Role::kv_b, "model.layers.{L}.self_attn.kv_b_proj.weight");
  add_name(map, Role::router, "model.layers.{L}.mlp.gate.weight");
  add_name(map, Role::correction_bias, "model.layers.{L}.mlp.gate.e_score_correction_bias");
  add_shared_names(map, "shared_experts");
  for (const SkippedTensors& skipped : m.skipped) map.ignored.push_back(skipped.pattern);
  return map;
}

}  // namespace

// Kimi-K2 has model_type "kimi_k2" and the architecture of DeepSeek-V3.
Family deepseek_family() {
  return {
      "deepseek_v3", {"DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM"}, configure, names, {"deepseek_v2", "kimi_k2"}};
}

}  // namespace sluice::model
