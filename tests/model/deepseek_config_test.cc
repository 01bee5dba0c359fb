// config.json of DeepSeek-V2, V3 and Kimi-K2: values as published, defaults, and refusals that name the field.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "model/families.h"

namespace sluice::model {
namespace {

// The sizes of DeepSeek-V3, fewer layers.
const char* const kV3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1,
  "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 3, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false,
  "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 129280})";

// DeepSeek-V2-Lite, fewer layers.
const char* const kV2Lite = R"({
  "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1,
  "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
  "num_experts_per_tok": 6, "num_hidden_layers": 3, "num_key_value_heads": 16, "q_lora_rank": null,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "tie_word_embeddings": false,
  "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400})";

ModelConfig configure(const std::string& text) {
  return deepseek_family().configure(ckpt::HfConfig::parse(text, "config.json"));
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_error(const std::string& text, ErrorCode code, const std::string& part) {
  try {
    configure(text);
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(DeepseekConfig, V3AsPublished) {
  const ModelConfig m = configure(kV3);
  EXPECT_EQ(m.family, "deepseek_v3");
  EXPECT_EQ(m.max_positions, 163840);
  ASSERT_EQ(m.layers.size(), 3u);
  EXPECT_EQ(m.layers[0].dense()->intermediate, 18432);
  const AttentionSpec& a = m.layers[1].attention;
  EXPECT_EQ(a.mla->q_lora_rank, 1536);
  EXPECT_EQ(a.mla->latent_width(), 576);
  EXPECT_EQ(a.query_width(), 128 * 192);
  EXPECT_EQ(a.output_width(), 128 * 128);
  EXPECT_TRUE(a.rope.interleaved);
  EXPECT_EQ(a.rope.rotary_dim, 64);
  EXPECT_NEAR(a.scale, 0.135234, 1e-6);  // 192^-1/2 (0.1 ln 40 + 1)^2, by hand
  const RoutingSpec& r = m.layers[1].moe()->routing;
  EXPECT_EQ(r.method, RoutingMethod::grouped_top2);
  EXPECT_EQ(r.scoring, Scoring::sigmoid);
  EXPECT_EQ(r.groups, 8);
  EXPECT_EQ(r.top_groups, 4);
  EXPECT_EQ(r.top_k, 8);
  EXPECT_TRUE(r.renormalize);
  EXPECT_EQ(r.routed_scaling_factor, 2.5f);
  EXPECT_TRUE(m.layers[1].correction_bias);
  EXPECT_EQ(m.layers[1].shared->ffn.intermediate, 2048);
  ASSERT_EQ(m.skipped.size(), 1u);
  EXPECT_EQ(m.skipped[0].pattern, "model.layers.3.*");
}

TEST(DeepseekConfig, V2LiteAsPublished) {
  const ModelConfig m = configure(kV2Lite);
  EXPECT_EQ(m.family, "deepseek_v2");
  const AttentionSpec& a = m.layers[1].attention;
  EXPECT_EQ(a.mla->q_lora_rank, 0);
  EXPECT_NEAR(a.scale, 0.114721, 1e-6);  // 192^-1/2 (0.0707 ln 40 + 1)^2, by hand
  const RoutingSpec& r = m.layers[1].moe()->routing;
  EXPECT_EQ(r.method, RoutingMethod::score_topk);
  EXPECT_EQ(r.scoring, Scoring::softmax);
  EXPECT_FALSE(r.renormalize);
  EXPECT_FALSE(m.layers[1].correction_bias);
  EXPECT_EQ(m.layers[1].shared->ffn.intermediate, 2 * 1408);
  EXPECT_TRUE(m.skipped.empty());
}

// V2 (236B): groups by their best expert, and a factor of 16.
TEST(DeepseekConfig, GroupLimitedGreedy) {
  std::string text = with(kV2Lite, R"("topk_method": "greedy")", R"("topk_method": "group_limited_greedy")");
  text = with(with(text, R"("n_group": 1)", R"("n_group": 8)"), R"("topk_group": 1)", R"("topk_group": 3)");
  const ModelConfig m = configure(with(text, R"("routed_scaling_factor": 1.0)", R"("routed_scaling_factor": 16.0)"));
  const RoutingSpec& r = m.layers[1].moe()->routing;
  EXPECT_EQ(r.method, RoutingMethod::grouped_max);
  EXPECT_EQ(r.groups, 8);
  EXPECT_EQ(r.top_groups, 3);
  EXPECT_EQ(r.routed_scaling_factor, 16.0f);
}

TEST(DeepseekConfig, KimiK2) {
  std::string text = with(kV3, R"("model_type": "deepseek_v3")", R"("model_type": "kimi_k2")");
  text = with(with(text, R"("n_group": 8)", R"("n_group": 1)"), R"("topk_group": 4)", R"("topk_group": 1)");
  text = with(text, R"("n_routed_experts": 256)", R"("n_routed_experts": 384)");
  text = with(text, R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": 0)");
  const ckpt::HfConfig config = ckpt::HfConfig::parse(text, "config.json");
  const std::vector<Family> families = {deepseek_family()};
  const ModelConfig m = find_family(families, config).configure(config);
  EXPECT_EQ(m.layers[2].moe()->routing.experts, 384);
  EXPECT_EQ(m.layers[2].moe()->routing.groups, 1);
  EXPECT_TRUE(m.skipped.empty());
}

// transformers 5 writes neither scoring_func nor topk_method.
TEST(DeepseekConfig, DefaultsOfV3) {
  std::string text = with(kV3, R"("scoring_func": "sigmoid", )", "");
  text = with(text, R"("topk_method": "noaux_tc", )", "");
  const RoutingSpec r = configure(text).layers[1].moe()->routing;
  EXPECT_EQ(r.method, RoutingMethod::grouped_top2);
  EXPECT_EQ(r.scoring, Scoring::sigmoid);
}

TEST(DeepseekConfig, Refusals) {
  const auto unsupported = ErrorCode::unsupported;
  expect_error(with(kV3, R"("attention_bias": false)", R"("attention_bias": true)"), unsupported, "attention_bias");
  expect_error(with(kV3, "noaux_tc", "other"), unsupported, "topk_method");
  expect_error(with(kV3, R"("sigmoid")", R"("tanh")"), unsupported, "scoring_func");
  expect_error(with(kV3, R"("topk_group": 4)", R"("topk_group": 9)"), ErrorCode::bad_input, "topk_group");
  expect_error(with(kV3, R"("n_group": 8)", R"("n_group": 7)"), ErrorCode::bad_input, "layer 1");
  expect_error(with(kV3, R"("kv_lora_rank": 512,)", ""), ErrorCode::bad_input, "kv_lora_rank");
  expect_error(with(kV3, R"("qk_rope_head_dim": 64)", R"("qk_rope_head_dim": 63)"), ErrorCode::bad_input, "even");
  std::string text = with(kV2Lite, R"("norm_topk_prob": false)", R"("norm_topk_prob": true)");
  expect_error(text, unsupported, "norm_topk_prob");
  expect_error(with(kV2Lite, R"("norm_topk_prob": false)", R"("norm_topk_prob": false, "mlp_bias": true)"), unsupported,
               "mlp_bias");
}

// The defaults of transformers' configuration classes.
TEST(DeepseekConfig, FieldsThatAreLeftOut) {
  std::string text = with(kV3, R"("n_group": 8, )", "");
  text = with(text, R"("topk_group": 4, )", "");
  text = with(text, R"("routed_scaling_factor": 2.5, )", "");
  text = with(text, R"("first_k_dense_replace": 1,)", "");
  text = with(text, R"("num_hidden_layers": 3)", R"("num_hidden_layers": 4)");
  const ModelConfig m = configure(text);
  EXPECT_NE(m.layers[2].dense(), nullptr);
  const RoutingSpec& r = m.layers[3].moe()->routing;
  EXPECT_EQ(r.groups, 8);
  EXPECT_EQ(r.top_groups, 4);
  EXPECT_EQ(r.routed_scaling_factor, 2.5f);
}

TEST(DeepseekConfig, TheArchitectureIsTheOneThatIsServed) {
  const std::string text = with(kV2Lite, R"(["DeepseekV2ForCausalLM"])", R"(["Foo", "DeepseekV2ForCausalLM"])");
  EXPECT_EQ(configure(text).family, "deepseek_v2");
  EXPECT_EQ(configure(text).architecture, "DeepseekV2ForCausalLM");
  EXPECT_EQ(configure(with(kV2Lite, R"("architectures": ["DeepseekV2ForCausalLM"], )", "")).family, "deepseek_v2");
}

}  // namespace
}  // namespace sluice::model
