// What a decoder-only model consists of, independent of any checkpoint dialect: plain data that a family builds from
// config.json and that everything above reads.
//
// Built once at load time, constant afterwards, shared freely. Formulas behind the fields are where they are computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/rope_config.h"
#include "moe/spec.h"

namespace sluice::model {

struct RopeSpec {
  ckpt::RopeConfig config;
  std::int32_t rotary_dim = 0;  // leading columns of a head that are rotated; even
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + d/2)

  bool operator==(const RopeSpec&) const = default;
};

enum class QkNorm : std::uint8_t {
  none,
  per_head,     // one weight [head_dim], every head normalised alone (Qwen3)
  whole_width,  // weights [heads * head_dim] and [kv_heads * head_dim], all heads normalised together (OLMoE)
};

// Multi-head latent attention: keys and values of a token are linear in a latent of kv_lora_rank columns that all heads
// share, and in rope_dim rotated key columns. A query head is nope_dim plain columns, then rope_dim rotated ones.
struct MlaSpec {
  std::int32_t q_lora_rank = 0;  // 0: queries come from one projection
  std::int32_t kv_lora_rank = 0;
  std::int32_t nope_dim = 0;
  std::int32_t rope_dim = 0;
  std::int32_t v_dim = 0;
  float norm_epsilon = 1e-6f;  // of the norms of both latents

  std::int32_t latent_width() const { return kv_lora_rank + rope_dim; }  // what the cache holds of a token
};

struct AttentionSpec {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;  // not used with mla
  std::int32_t head_dim = 0;  // of queries
  std::optional<MlaSpec> mla;
  QkNorm qk_norm = QkNorm::none;
  RopeSpec rope;
  std::int32_t window = 0;  // keys seen, counting the query's own; 0 = all
  bool sinks = false;       // one learned logit a head in the softmax denominator
  bool qkv_bias = false;
  bool output_bias = false;
  float scale = 1.0f;  // of q k before softmax

  std::int64_t query_width() const { return static_cast<std::int64_t>(heads) * head_dim; }
  std::int64_t kv_width() const { return mla ? mla->latent_width() : static_cast<std::int64_t>(kv_heads) * head_dim; }
  // Input of the output projection.
  std::int64_t output_width() const { return static_cast<std::int64_t>(heads) * (mla ? mla->v_dim : head_dim); }
};

struct DenseFfnSpec {
  std::int64_t intermediate = 0;
  ActivationSpec activation;
};

// A dense FFN beside the routed experts that sees every token; its output is added to their sum.
struct SharedExpertSpec {
  DenseFfnSpec ffn;
  bool output_gate = false;  // its output is multiplied by sigmoid(w h), w of role shared_expert_gate (Qwen2-MoE)
};

// One transformer block: x += attention(norm(x)); x += ffn(norm(x)).
struct BlockSpec {
  AttentionSpec attention;
  std::variant<DenseFfnSpec, LayerSpec> ffn;
  // Of a block with experts:
  std::optional<SharedExpertSpec> shared;
  bool router_bias = false;      // added to the router's logits (GPT-OSS)
  bool correction_bias = false;  // for selection only, kept in f32 (DeepSeek-V3, GLM-4.5)

  const LayerSpec* moe() const { return std::get_if<LayerSpec>(&ffn); }
  const DenseFfnSpec* dense() const { return std::get_if<DenseFfnSpec>(&ffn); }
};

// Tensors that a checkpoint may hold and this engine leaves out, with what they are for: told to the user.
struct SkippedTensors {
  std::string pattern;  // as in ckpt::NameMap::ignored
  std::string what;     // "the multi-token prediction layer"
};

struct ModelConfig {
  std::string family;        // "qwen3_moe"
  std::string architecture;  // "Qwen3MoeForCausalLM", as the checkpoint spells it
  std::int64_t hidden = 0;   // H
  std::int64_t vocab = 0;    // V, rows of the embedding, padding rows included
  std::int64_t max_positions = 0;
  float norm_epsilon = 1e-6f;
  bool tied_embeddings = false;  // the embedding is also the output projection
  std::vector<BlockSpec> layers;
  std::vector<SkippedTensors> skipped;

  std::int64_t moe_layers() const;
};

// Throws Error(bad_input) naming the field when sizes contradict each other: heads that kv_heads does not divide, an
// odd rotary_dim, a router that cannot be routed, no layers.
void validate(const ModelConfig& config);

}  // namespace sluice::model
