#include "model/config.h"

#include <fmt/core.h>

#include "core/error.h"
#include "model/rope.h"

namespace sluice::model {
namespace {

void require(bool ok, std::int64_t layer, std::string_view what, std::string_view expected) {
  if (!ok) fail(ErrorCode::bad_input, fmt::format("config.json: layer {}: {}", layer, what), std::string(expected));
}

void validate_latent(const AttentionSpec& a, std::int64_t layer) {
  const MlaSpec& m = *a.mla;
  require(a.heads > 0 && m.q_lora_rank >= 0 && m.kv_lora_rank > 0 && m.nope_dim > 0 && m.v_dim > 0, layer,
          fmt::format("{} heads, kv_lora_rank {}, qk_nope_head_dim {}, v_head_dim {}", a.heads, m.kv_lora_rank,
                      m.nope_dim, m.v_dim),
          "positive");
  require(a.rope.rotary_dim == m.rope_dim && m.rope_dim > 0 && m.rope_dim % 2 == 0, layer,
          fmt::format("{} rotated columns, qk_rope_head_dim {}", a.rope.rotary_dim, m.rope_dim), "equal and even");
  require(a.head_dim == m.nope_dim + m.rope_dim, layer, fmt::format("query heads of {} columns", a.head_dim),
          "qk_nope_head_dim + qk_rope_head_dim");
  rope_frequencies(a.rope);  // refuses what it can't compute
}

void validate_attention(const AttentionSpec& a, std::int64_t layer) {
  if (a.mla) return validate_latent(a, layer);
  require(a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0, layer,
          fmt::format("{} attention heads, {} key-value heads", a.heads, a.kv_heads), "a multiple");
  require(a.head_dim > 0 && a.head_dim % 2 == 0, layer, fmt::format("head_dim {}", a.head_dim), "even and positive");
  require(a.rope.rotary_dim > 0 && a.rope.rotary_dim % 2 == 0 && a.rope.rotary_dim <= a.head_dim, layer,
          fmt::format("{} rotated columns of {}", a.rope.rotary_dim, a.head_dim), "even, at most head_dim");
  rope_frequencies(a.rope);  // refuses what it can't compute
}

void validate_experts(const LayerSpec& spec, std::int64_t layer) {
  try {
    sluice::validate(spec);
  } catch (const Error& e) {  // what is wrong with a spec was wrong in the file
    fail(ErrorCode::bad_input, fmt::format("config.json: layer {}: {}", layer, e.what()));
  }
}

}  // namespace

std::int64_t ModelConfig::moe_layers() const {
  std::int64_t count = 0;
  for (const BlockSpec& block : layers) count += block.moe() != nullptr ? 1 : 0;
  return count;
}

void validate(const ModelConfig& config) {
  if (config.layers.empty()) fail(ErrorCode::bad_input, "config.json: num_hidden_layers: 0", "at least one layer");
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const BlockSpec& block = config.layers[i];
    validate_attention(block.attention, static_cast<std::int64_t>(i));
    if (block.moe() != nullptr) validate_experts(*block.moe(), static_cast<std::int64_t>(i));
  }
}

}  // namespace sluice::model
