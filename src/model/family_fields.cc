#include "model/family_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "checkpoint/rope_config.h"
#include "core/error.h"

namespace sluice::model {
namespace {

// Context that the model is made for. YaRN files often leave max_position_embeddings at what was trained before.
std::int64_t max_positions_of(const ckpt::Fields& f) {
  const std::int64_t stated = f.get_int({"max_position_embeddings"}, ckpt::kPositionRange);
  const ckpt::RopeConfig rope = ckpt::read_rope(f);
  if (rope.type != ckpt::RopeType::yarn) return stated;
  const std::int64_t extended = std::lround(static_cast<double>(rope.original_max_positions) * rope.factor);
  return std::max(stated, extended);
}

}  // namespace

ModelConfig common_config(const ckpt::HfConfig& config, const Family& family, double norm_epsilon) {
  const ckpt::Fields& f = config.fields();
  ModelConfig m;
  m.family = family.name;
  m.architecture = architecture_of(family, config);
  m.hidden = f.get_int({"hidden_size"}, ckpt::kDimRange);
  m.vocab = f.get_int({"vocab_size"}, ckpt::kVocabRange);
  m.max_positions = max_positions_of(f);
  m.norm_epsilon = static_cast<float>(f.get_number({"rms_norm_eps"}, {0.0, 1.0}, norm_epsilon));
  m.tied_embeddings = f.get_bool({"tie_word_embeddings"}, false);
  return m;
}

RopeSpec rope_of(const ckpt::Fields& fields, std::int32_t head_dim, const ckpt::RopeDefaults& defaults) {
  RopeSpec rope;
  rope.config = ckpt::read_rope(fields, defaults);
  const std::optional<ckpt::Fields> sections = fields.maybe_object({"rope_parameters"});
  if (sections && sections->has({"full_attention"}) && sections->has({"sliding_attention"}) &&
      ckpt::read_rope(fields, defaults, "sliding_attention") != rope.config) {
    fail(ErrorCode::unsupported, fields.origin() + ": rope_parameters differ between full and sliding attention",
         "the same for all layers");
  }
  rope.rotary_dim = static_cast<std::int32_t>(head_dim * rope.config.partial_rotary_factor);
  return rope;
}

AttentionSpec grouped_attention_of(const ckpt::Fields& f, std::int64_t hidden, const ckpt::RopeDefaults& defaults) {
  AttentionSpec a;
  a.heads = static_cast<std::int32_t>(f.get_int({"num_attention_heads"}, {1, ckpt::kCountRange.max}));
  a.kv_heads = static_cast<std::int32_t>(f.get_int({"num_key_value_heads"}, {1, ckpt::kCountRange.max}, a.heads));
  a.head_dim = static_cast<std::int32_t>(f.get_int({"head_dim"}, ckpt::kDimRange, hidden / a.heads));
  a.rope = rope_of(f, a.head_dim, defaults);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  return a;
}

std::int64_t layers_of(const ckpt::Fields& f) { return f.get_int({"num_hidden_layers"}, {1, ckpt::kCountRange.max}); }

RoutingSpec softmax_routing_of(const ckpt::Fields& f, std::int64_t experts) {
  RoutingSpec r;
  r.method = RoutingMethod::score_topk;
  r.scoring = Scoring::softmax;
  r.experts = static_cast<std::int32_t>(experts);
  r.top_k = static_cast<std::int32_t>(f.get_int({"num_experts_per_tok"}, {1, experts}));
  r.renormalize = f.get_bool({"norm_topk_prob"}, false);
  return r;
}

RoutingSpec sigmoid_routing_of(const ckpt::Fields& f, std::int64_t experts, const GroupDefaults& defaults) {
  RoutingSpec r;
  r.method = RoutingMethod::grouped_top2;
  r.scoring = Scoring::sigmoid;
  r.experts = static_cast<std::int32_t>(experts);
  r.top_k = static_cast<std::int32_t>(f.get_int({"num_experts_per_tok"}, {1, experts}));
  r.groups = static_cast<std::int32_t>(f.get_int({"n_group"}, {1, experts}, defaults.groups));
  r.top_groups = static_cast<std::int32_t>(f.get_int({"topk_group"}, {1, r.groups}, defaults.top_groups));
  r.renormalize = f.get_bool({"norm_topk_prob"}, true);
  r.renormalize_epsilon = 1e-20f;
  r.routed_scaling_factor =
      static_cast<float>(f.get_number({"routed_scaling_factor"}, {0.0, 1e6}, defaults.scaling_factor));
  return r;
}

void refuse_field(const ckpt::Fields& fields, std::string_view field, std::string_view missing) {
  const Json* value = fields.find({field});
  if (value == nullptr || (value->is_bool() && !value->as_bool(field))) return;
  fail(ErrorCode::unsupported, fields.origin() + ": " + std::string(field) + " is set", "null or false",
       "not supported yet: " + std::string(missing));
}

ActivationSpec gated_activation_of(const ckpt::Fields& fields) {
  const std::string name = fields.get_string({"hidden_act", "hidden_activation"}, "silu");
  if (name == "silu" || name == "swish") return {ActivationKind::swiglu};
  if (name == "gelu") return {ActivationKind::geglu_erf};
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return {ActivationKind::geglu_tanh};
  fail(ErrorCode::unsupported, fields.origin() + ": hidden_act: \"" + name + "\"",
       "silu, swish, gelu, gelu_pytorch_tanh or gelu_new");
}

ckpt::NameMap decoder_names() {
  constexpr std::pair<Role, std::string_view> kNames[] = {
      {Role::embedding, "model.embed_tokens.weight"},
      {Role::final_norm, "model.norm.weight"},
      {Role::output, "lm_head.weight"},
      {Role::attention_norm, "model.layers.{L}.input_layernorm.weight"},
      {Role::q, "model.layers.{L}.self_attn.q_proj.weight"},
      {Role::k, "model.layers.{L}.self_attn.k_proj.weight"},
      {Role::v, "model.layers.{L}.self_attn.v_proj.weight"},
      {Role::o, "model.layers.{L}.self_attn.o_proj.weight"},
      {Role::q_bias, "model.layers.{L}.self_attn.q_proj.bias"},
      {Role::k_bias, "model.layers.{L}.self_attn.k_proj.bias"},
      {Role::v_bias, "model.layers.{L}.self_attn.v_proj.bias"},
      {Role::o_bias, "model.layers.{L}.self_attn.o_proj.bias"},
      {Role::ffn_norm, "model.layers.{L}.post_attention_layernorm.weight"},
      {Role::gate, "model.layers.{L}.mlp.gate_proj.weight"},
      {Role::up, "model.layers.{L}.mlp.up_proj.weight"},
      {Role::down, "model.layers.{L}.mlp.down_proj.weight"},
  };
  ckpt::NameMap map;
  for (const auto& [role, pattern] : kNames) map.tensors.emplace_back(role_name(role), pattern);
  // A table that old versions saved; it is computed here.
  map.ignored = {"model.layers.{L}.self_attn.rotary_emb.inv_freq"};
  return map;
}

void add_name(ckpt::NameMap& map, Role role, std::string_view pattern) {
  map.tensors.emplace_back(role_name(role), pattern);
}

std::vector<ckpt::ExpertNames> mlp_expert_names() {
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

void add_qk_norm_names(ckpt::NameMap& map) {
  add_name(map, Role::q_norm, "model.layers.{L}.self_attn.q_norm.weight");
  add_name(map, Role::k_norm, "model.layers.{L}.self_attn.k_norm.weight");
}

void add_shared_names(ckpt::NameMap& map, std::string_view module) {
  const std::string start = "model.layers.{L}.mlp." + std::string(module) + ".";
  add_name(map, Role::shared_gate, start + "gate_proj.weight");
  add_name(map, Role::shared_up, start + "up_proj.weight");
  add_name(map, Role::shared_down, start + "down_proj.weight");
}

}  // namespace sluice::model
