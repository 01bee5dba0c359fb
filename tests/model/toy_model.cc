#include "model/toy_model.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <list>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "numerics/bf16.h"

namespace sluice::testing {
namespace {

class Writer {
 public:
  explicit Writer(const ToyOptions& o) : o_(o), state_(o.seed) {}

  void write(const std::string& path) {
    matrix("model.embed_tokens.weight", o_.vocab, o_.hidden, 1.0f, o_.nan_token);
    matrix("lm_head.weight", o_.vocab, o_.hidden, 3.0f);
    norm("model.norm.weight", o_.hidden);
    for (std::int32_t l = 0; l < o_.layers; ++l) layer(l);
    file_.write(path);
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<Bf16> values) {
    data_.push_back(std::move(values));
    file_.add(name, DType::bf16, std::move(shape), data_.back());
  }

  // Uniform: its tails don't matter, and it's quick to draw.
  std::vector<Bf16> random(std::int64_t n, float mean, float deviation) {
    std::vector<Bf16> values(static_cast<std::size_t>(n));
    for (Bf16& v : values) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      const float unit = static_cast<float>(state_ >> 40) * 0x1p-24f;  // [0, 1)
      v = to_bf16(mean + deviation * 3.4641016f * (unit - 0.5f));      // sqrt(12): standard deviation 1
    }
    return values;
  }

  // Standard deviation gain / sqrt(cols), so that outputs have about the size of `gain` times the inputs'.
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, float gain, std::int64_t nan_row = -1) {
    std::vector<Bf16> values = random(rows * cols, 0.0f, gain / std::sqrt(static_cast<float>(cols)));
    for (std::int64_t i = 0; o_.uneven && i < rows * cols; ++i) {
      const std::int64_t row = i / cols, col = i % cols;
      const auto small = static_cast<float>(1 << (row / 32 * 3 + col / 32 * 5) % 7);
      const auto large = static_cast<float>(1 + (row / 128 + 2 * (col / 128)) % 5);
      Bf16& v = values[static_cast<std::size_t>(i)];
      v = to_bf16(to_float(v) * small * large / 16.0f);
    }
    if (nan_row >= 0)
      values[static_cast<std::size_t>(nan_row * cols)] = to_bf16(std::numeric_limits<float>::quiet_NaN());
    add(name, {rows, cols}, std::move(values));
  }

  void vector(const std::string& name, std::int64_t n, float mean, float spread) {
    add(name, {n}, random(n, mean, spread));
  }
  void norm(const std::string& name, std::int64_t n) { vector(name, n, 1.0f, 0.2f); }

  void projection(const std::string& prefix, const char* name, std::int64_t rows, std::int64_t cols, float gain) {
    matrix(prefix + name + ".weight", rows, cols, gain);
    if (o_.attention_bias) vector(prefix + name + ".bias", rows, 0.0f, 0.3f);
  }

  void ffn(const std::string& prefix, std::int64_t intermediate) {
    matrix(prefix + "gate_proj.weight", intermediate, o_.hidden, 2.0f);
    matrix(prefix + "up_proj.weight", intermediate, o_.hidden, 0.5f);
    matrix(prefix + "down_proj.weight", o_.hidden, intermediate, 1.5f);
  }

  void layer(std::int32_t l) {
    const std::string p = fmt::format("model.layers.{}.", l);
    const std::string attention = p + "self_attn.";
    norm(p + "input_layernorm.weight", o_.hidden);
    norm(p + "post_attention_layernorm.weight", o_.hidden);
    projection(attention, "q_proj", o_.heads * o_.head_dim, o_.hidden, 1.0f);
    projection(attention, "k_proj", o_.kv_heads * o_.head_dim, o_.hidden, 1.0f);
    projection(attention, "v_proj", o_.kv_heads * o_.head_dim, o_.hidden, 1.0f);
    projection(attention, "o_proj", o_.hidden, o_.heads * o_.head_dim, 1.0f);
    norm(attention + "q_norm.weight", o_.head_dim);
    norm(attention + "k_norm.weight", o_.head_dim);
    if (l == 1) return ffn(p + "mlp.", o_.dense_intermediate);
    matrix(p + "mlp.gate.weight", o_.experts, o_.hidden, 2.0f);
    for (std::int32_t e = 0; e < o_.experts; ++e) ffn(fmt::format("{}mlp.experts.{}.", p, e), o_.moe_intermediate);
  }

  const ToyOptions& o_;
  std::uint64_t state_;
  std::list<std::vector<Bf16>> data_;
  ckpt::SafetensorsWriter file_;
};

void write_config(const ToyOptions& o, const std::string& path) {
  std::ofstream(path) << fmt::format(
      R"({{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
  "hidden_size": {}, "moe_intermediate_size": {}, "intermediate_size": {}, "num_hidden_layers": {}, "num_experts": {},
  "num_experts_per_tok": {}, "norm_topk_prob": false, "num_attention_heads": {}, "num_key_value_heads": {},
  "head_dim": {}, "vocab_size": {}, "max_position_embeddings": {}, "attention_bias": {}, "mlp_only_layers": [1],
  "rope_theta": 10000.0, "hidden_act": "silu"}})",
      o.hidden, o.moe_intermediate, o.dense_intermediate, o.layers, o.experts, o.top_k, o.heads, o.kv_heads, o.head_dim,
      o.vocab, o.max_positions, o.attention_bias ? "true" : "false");
}

std::string new_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice_toy_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
  return pattern;
}

}  // namespace

ToyModel::ToyModel(const ToyOptions& options) : folder_(new_folder()) {
  write_config(options, folder_ + "/config.json");
  Writer(options).write(folder_ + "/model.safetensors");
}

ToyModel::~ToyModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace sluice::testing
