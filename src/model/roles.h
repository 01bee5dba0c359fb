// The tensors of a model by role: what family files name in their name maps and what the decoder asks a
// ckpt::WeightSource for. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::model {

enum class Role : std::uint8_t {
  embedding,       // [V, H]
  final_norm,      // [1, H]
  output,          // [V, H]; absent when embeddings are tied
  attention_norm,  // [1, H]
  q,
  k,
  v,  // [heads * head_dim, H]
  o,  // [H, heads * head_dim]
  q_bias,
  k_bias,
  v_bias,
  o_bias,
  q_norm,
  k_norm,           // [1, head_dim], or as wide as all heads
  sinks,            // [1, heads]
  ffn_norm,         // [1, H]
  router,           // [E, H]
  router_bias,      // [1, E], added to the logits
  correction_bias,  // [1, E], selection only
  gate,
  up,    // dense FFN, [I, H]
  down,  // dense FFN, [H, I]
  shared_gate,
  shared_up,           // shared expert, [I, H]
  shared_down,         // [H, I]
  shared_expert_gate,  // [1, H], sigmoid of it scales the shared expert's output
  q_a,                 // latent attention: [q_lora_rank, H]
  q_a_norm,            // [1, q_lora_rank]
  q_b,                 // [heads * (nope + rope), q_lora_rank]
  kv_a,                // [kv_lora_rank + rope, H]
  kv_a_norm,           // [1, kv_lora_rank]
  kv_b,                // [heads * (nope + v), kv_lora_rank]: of each head its key rows, then its value rows
};

std::string_view role_name(Role role);

}  // namespace sluice::model
