// config.json of Qwen3-MoE: both spellings, defaults, dense layers, and refusals that name the field.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "model/families.h"

namespace sluice::model {
namespace {

// transformers 4, the values of Qwen3-30B-A3B.
const char* const kVersion4 = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
  "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
  "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 3,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
  "vocab_size": 151936})";

// The same model as transformers 5 writes it.
const char* const kVersion5 = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1, "dtype": "bfloat16",
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
  "max_position_embeddings": 40960, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
  "norm_topk_prob": true, "num_attention_heads": 32, "num_local_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 3, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "sliding_window": null,
  "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})";

ModelConfig configure(const std::string& text) {
  return qwen3_moe_family().configure(ckpt::HfConfig::parse(text, "config.json"));
}

// kVersion4 with one piece of text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kVersion4;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Error refusal(const std::string& text) {
  try {
    configure(text);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode::check_failed, ""};
}

void expect_error(const std::string& text, ErrorCode code, const std::string& part) {
  const Error e = refusal(text);
  EXPECT_EQ(e.code(), code) << e.what();
  EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
}

class Spellings : public testing::TestWithParam<const char*> {};

TEST_P(Spellings, GiveTheSameModel) {
  const ModelConfig m = configure(GetParam());
  EXPECT_EQ(m.family, "qwen3_moe");
  EXPECT_EQ(m.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(m.hidden, 2048);
  EXPECT_EQ(m.vocab, 151936);
  EXPECT_EQ(m.max_positions, 40960);
  EXPECT_FLOAT_EQ(m.norm_epsilon, 1e-6f);
  EXPECT_FALSE(m.tied_embeddings);
  ASSERT_EQ(m.layers.size(), 3u);
  EXPECT_EQ(m.moe_layers(), 3);
  for (const BlockSpec& block : m.layers) {
    const AttentionSpec& a = block.attention;
    EXPECT_EQ(a.heads, 32);
    EXPECT_EQ(a.kv_heads, 4);
    EXPECT_EQ(a.head_dim, 128);
    EXPECT_EQ(a.query_width(), 4096);
    EXPECT_EQ(a.kv_width(), 512);
    EXPECT_EQ(a.qk_norm, QkNorm::per_head);
    EXPECT_FALSE(a.qkv_bias);
    EXPECT_FALSE(a.output_bias);
    EXPECT_FALSE(a.sinks);
    EXPECT_EQ(a.window, 0);
    EXPECT_FLOAT_EQ(a.scale, static_cast<float>(1.0 / std::sqrt(128.0)));
    EXPECT_EQ(a.rope.rotary_dim, 128);
    EXPECT_EQ(a.rope.config.theta, 1000000.0);
    EXPECT_EQ(a.rope.config.type, ckpt::RopeType::plain);
    EXPECT_FALSE(a.rope.interleaved);
    const LayerSpec* moe = block.moe();
    ASSERT_NE(moe, nullptr);
    EXPECT_EQ(moe->hidden, 2048);
    EXPECT_EQ(moe->intermediate, 768);
    EXPECT_EQ(moe->width(), 2048);
    EXPECT_EQ(moe->routing.experts, 128);
    EXPECT_EQ(moe->routing.top_k, 8);
    EXPECT_EQ(moe->routing.method, RoutingMethod::score_topk);
    EXPECT_EQ(moe->routing.scoring, Scoring::softmax);
    EXPECT_TRUE(moe->routing.renormalize);
    EXPECT_EQ(moe->routing.routed_scaling_factor, 1.0f);
    EXPECT_EQ(moe->activation.kind, ActivationKind::swiglu);
    EXPECT_FALSE(moe->has_bias);
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Spellings, testing::Values(kVersion4, kVersion5));

// Which of three layers have experts, as "mdm".
std::string kinds(const std::string& text) {
  std::string k;
  for (const BlockSpec& block : configure(text).layers) k += block.moe() != nullptr ? 'm' : 'd';
  return k;
}

TEST(Qwen3Moe, DenseLayers) {
  EXPECT_EQ(kinds(with("\"mlp_only_layers\": []", "\"mlp_only_layers\": [0, 2]")), "dmd");
  EXPECT_EQ(kinds(with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2")), "dmd");
  EXPECT_EQ(kinds(with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 3")), "ddm");
  EXPECT_EQ(kinds(with("\"num_experts\": 128", "\"num_experts\": 0")), "ddd");
  const ModelConfig m = configure(with("\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]"));
  ASSERT_NE(m.layers[1].dense(), nullptr);
  EXPECT_EQ(m.layers[1].dense()->intermediate, 6144);
  EXPECT_EQ(m.layers[1].dense()->activation.kind, ActivationKind::swiglu);
}

TEST(Qwen3Moe, OptionsThatChangeTheResult) {
  EXPECT_FALSE(configure(with("\"norm_topk_prob\": true,", "")).layers[0].moe()->routing.renormalize);
  EXPECT_TRUE(configure(with("\"attention_bias\": false", "\"attention_bias\": true")).layers[0].attention.qkv_bias);
  EXPECT_TRUE(configure(with("\"attention_bias\": false", "\"attention_bias\": true")).layers[0].attention.output_bias);
  EXPECT_EQ(configure(with("\"head_dim\": 128,", "")).layers[0].attention.head_dim, 64);
  EXPECT_TRUE(configure(with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true")).tied_embeddings);
  EXPECT_EQ(configure(with("\"silu\"", "\"gelu_pytorch_tanh\"")).layers[0].moe()->activation.kind,
            ActivationKind::geglu_tanh);
}

TEST(Qwen3Moe, YarnExtendsTheContext) {
  const ModelConfig m = configure(with("\"rope_scaling\": null",
                                       "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                                       "\"original_max_position_embeddings\": 32768}"));
  EXPECT_EQ(m.max_positions, 131072);
  EXPECT_EQ(m.layers[0].attention.rope.config.type, ckpt::RopeType::yarn);
  EXPECT_EQ(m.layers[0].attention.rope.config.factor, 4.0);
}

TEST(Qwen3Moe, RefusalsNameTheField) {
  expect_error(with("\"use_sliding_window\": false", "\"use_sliding_window\": true"), ErrorCode::unsupported,
               "use_sliding_window");
  expect_error(with("\"silu\"", "\"tanh\""), ErrorCode::unsupported, "hidden_act: \"tanh\"");
  expect_error(with("\"num_experts_per_tok\": 8", "\"num_experts_per_tok\": 129"), ErrorCode::bad_input,
               "num_experts_per_tok");
  expect_error(with("\"hidden_size\": 2048,", ""), ErrorCode::bad_input, "hidden_size");
  expect_error(with("\"num_key_value_heads\": 4", "\"num_key_value_heads\": 5"), ErrorCode::bad_input,
               "32 attention heads, 5 key-value heads");
  expect_error(with("\"head_dim\": 128", "\"head_dim\": 127"), ErrorCode::bad_input, "head_dim 127");
  expect_error(with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 0"), ErrorCode::bad_input, "num_hidden_layers");
  expect_error(with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 0"), ErrorCode::bad_input,
               "decoder_sparse_step");
  expect_error(with("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}"),
               ErrorCode::unsupported, "dynamic");
}

TEST(Families, FoundByArchitectureOrModelType) {
  const std::vector<Family> families = {qwen3_moe_family()};
  const auto find = [&](const std::string& text) {
    return find_family(families, ckpt::HfConfig::parse(text, "config.json")).name;
  };
  EXPECT_EQ(find(R"({"architectures": ["Qwen3MoeForCausalLM"]})"), "qwen3_moe");
  EXPECT_EQ(find(R"({"model_type": "qwen3_moe"})"), "qwen3_moe");
  EXPECT_EQ(find(R"({"architectures": ["Other", "Qwen3MoeForCausalLM"]})"), "qwen3_moe");
}

TEST(Families, UnknownArchitectureListsTheSupportedOnes) {
  const std::vector<Family> families = {qwen3_moe_family()};
  // An architecture decides, even when the model type is known: another head may sit on the same body.
  for (const char* text : {R"({"architectures": ["Qwen3MoeForSequenceClassification"], "model_type": "qwen3_moe"})",
                           R"({"model_type": "mamba"})", R"({})"}) {
    try {
      find_family(families, ckpt::HfConfig::parse(text, "config.json"));
      FAIL() << "accepted " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(e.what()).find("expected one of Qwen3MoeForCausalLM"), std::string::npos) << e.what();
    }
  }
}

TEST(Families, EveryRoleThatTheDecoderAsksForHasAName) {
  const ModelConfig m = configure(with("\"attention_bias\": false", "\"attention_bias\": true"));
  const ckpt::NameMap names = qwen3_moe_family().names(m);
  for (const char* role :
       {"embedding", "final_norm", "output", "attention_norm", "q", "k", "v", "o", "q_bias", "k_bias", "v_bias",
        "o_bias", "q_norm", "k_norm", "ffn_norm", "router", "gate", "up", "down"}) {
    EXPECT_FALSE(names.find(role).empty()) << role;
  }
  EXPECT_EQ(ckpt::expand(names.find("router"), 7), "model.layers.7.mlp.gate.weight");
  ASSERT_EQ(names.experts.size(), 2u);
  EXPECT_EQ(ckpt::expand(names.experts[0].down, 3, 11), "model.layers.3.mlp.experts.11.down_proj.weight");
}

}  // namespace
}  // namespace sluice::model
