#include "app/ask_weights.h"

#include "model/roles.h"

namespace sluice::app {
namespace {

using model::Role;

class Asker {
 public:
  Asker(ckpt::WeightSource& source, std::int64_t layer) : source_(source), layer_(layer) {}

  void matrix(Role role, std::int64_t rows, std::int64_t cols) {
    source_.tensor(model::role_name(role), layer_, rows, cols);
  }
  void vector(Role role, std::int64_t cols) { matrix(role, 1, cols); }
  void experts(const LayerSpec& spec) { source_.experts(layer_, spec); }

 private:
  ckpt::WeightSource& source_;
  std::int64_t layer_;
};

void ask_latent(Asker& ask, const model::AttentionSpec& a, std::int64_t hidden) {
  const model::MlaSpec& m = *a.mla;
  if (m.q_lora_rank == 0) {
    ask.matrix(Role::q, a.query_width(), hidden);
  } else {
    ask.matrix(Role::q_a, m.q_lora_rank, hidden);
    ask.vector(Role::q_a_norm, m.q_lora_rank);
    ask.matrix(Role::q_b, a.query_width(), m.q_lora_rank);
  }
  ask.matrix(Role::kv_a, m.latent_width(), hidden);
  ask.vector(Role::kv_a_norm, m.kv_lora_rank);
  ask.matrix(Role::kv_b, static_cast<std::int64_t>(a.heads) * (m.nope_dim + m.v_dim), m.kv_lora_rank);
}

void ask_attention(Asker& ask, const model::AttentionSpec& a, std::int64_t hidden) {
  ask.vector(Role::attention_norm, hidden);
  ask.matrix(Role::o, hidden, a.output_width());
  if (a.mla) {
    ask_latent(ask, a, hidden);
  } else {
    ask.matrix(Role::q, a.query_width(), hidden);
    ask.matrix(Role::k, a.kv_width(), hidden);
    ask.matrix(Role::v, a.kv_width(), hidden);
  }
  if (a.qkv_bias) {
    ask.vector(Role::q_bias, a.query_width());
    ask.vector(Role::k_bias, a.kv_width());
    ask.vector(Role::v_bias, a.kv_width());
  }
  if (a.output_bias) ask.vector(Role::o_bias, hidden);
  if (a.qk_norm != model::QkNorm::none) {
    const bool whole = a.qk_norm == model::QkNorm::whole_width;
    ask.vector(Role::q_norm, whole ? a.query_width() : a.head_dim);
    ask.vector(Role::k_norm, whole ? a.kv_width() : a.head_dim);
  }
  if (a.sinks) ask.vector(Role::sinks, a.heads);
}

void ask_dense(Asker& ask, const model::DenseFfnSpec& ffn, std::int64_t hidden) {
  if (is_gated(ffn.activation.kind)) ask.matrix(Role::gate, ffn.intermediate, hidden);
  ask.matrix(Role::up, ffn.intermediate, hidden);
  ask.matrix(Role::down, hidden, ffn.intermediate);
}

void ask_shared(Asker& ask, const model::SharedExpertSpec& shared, std::int64_t hidden) {
  if (is_gated(shared.ffn.activation.kind)) ask.matrix(Role::shared_gate, shared.ffn.intermediate, hidden);
  ask.matrix(Role::shared_up, shared.ffn.intermediate, hidden);
  ask.matrix(Role::shared_down, hidden, shared.ffn.intermediate);
  if (shared.output_gate) ask.matrix(Role::shared_expert_gate, 1, hidden);
}

void ask_moe(Asker& ask, const model::BlockSpec& block, std::int64_t hidden) {
  const LayerSpec& spec = *block.moe();
  ask.matrix(Role::router, spec.routing.experts, hidden);
  if (block.router_bias) ask.vector(Role::router_bias, spec.routing.experts);
  if (block.correction_bias) ask.vector(Role::correction_bias, spec.routing.experts);
  if (block.shared) ask_shared(ask, *block.shared, hidden);
  ask.experts(spec);
}

}  // namespace

void ask_for_weights(const model::ModelConfig& config, ckpt::WeightSource& source) {
  Asker outside(source, ckpt::kOutsideLayers);
  outside.matrix(Role::embedding, config.vocab, config.hidden);
  outside.vector(Role::final_norm, config.hidden);
  outside.matrix(config.tied_embeddings ? Role::embedding : Role::output, config.vocab, config.hidden);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const model::BlockSpec& block = config.layers[i];
    Asker ask(source, static_cast<std::int64_t>(i));
    ask_attention(ask, block.attention, config.hidden);
    ask.vector(Role::ffn_norm, config.hidden);
    if (block.moe() != nullptr) {
      ask_moe(ask, block, config.hidden);
    } else {
      ask_dense(ask, *block.dense(), config.hidden);
    }
  }
}

}  // namespace sluice::app
