#include "model/family_fields.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "checkpoint/rope_config.h"
#include "core/error.h"
#include "model/roles.h"

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

ModelConfig common_config(const ckpt::HfConfig& config, std::string_view family) {
  const ckpt::Fields& f = config.fields();
  ModelConfig m;
  m.family = family;
  m.architecture = config.architectures().empty() ? config.model_type() : config.architectures().front();
  m.hidden = f.get_int({"hidden_size"}, ckpt::kDimRange);
  m.vocab = f.get_int({"vocab_size"}, ckpt::kVocabRange);
  m.max_positions = max_positions_of(f);
  m.norm_epsilon = static_cast<float>(f.get_number({"rms_norm_eps"}, {0.0, 1.0}, 1e-6));
  m.tied_embeddings = f.get_bool({"tie_word_embeddings"}, false);
  return m;
}

RopeSpec rope_of(const ckpt::Fields& fields, std::int32_t head_dim) {
  RopeSpec rope;
  rope.config = ckpt::read_rope(fields);
  rope.rotary_dim = static_cast<std::int32_t>(head_dim * rope.config.partial_rotary_factor);
  return rope;
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

}  // namespace sluice::model
