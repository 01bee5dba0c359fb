// config.json of every family beside Qwen3-MoE: values as published, defaults, and refusals that name the field.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "model/families.h"

namespace sluice::model {
namespace {

struct Sample {
  Family (*family)();
  std::string text;

  ModelConfig configure() const { return family().configure(ckpt::HfConfig::parse(text, "config.json")); }
  // With one piece of text replaced.
  Sample with(const std::string& from, const std::string& to) const {
    Sample other = *this;
    const std::size_t at = other.text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.text.replace(at, from.size(), to);
    return other;
  }
  Sample without(const std::string& part) const { return with(part, ""); }
};

void expect_error(const Sample& sample, ErrorCode code, const std::string& part) {
  try {
    sample.configure();
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// The sizes of gpt-oss-20b, fewer layers.
const Sample kGptOss{gpt_oss_family, R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4,
  "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
  "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
  "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 3,
  "num_key_value_heads": 8, "num_local_experts": 32, "rms_norm_eps": 1e-05,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "rope_type": "yarn", "truncate": false},
  "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
  "vocab_size": 201088})"};

TEST(GptOss, AsPublished) {
  const ModelConfig m = kGptOss.configure();
  EXPECT_EQ(m.max_positions, 131072);
  ASSERT_EQ(m.layers.size(), 3u);
  const int windows[] = {128, 0, 128};
  for (std::size_t i = 0; i < 3; ++i) {
    const AttentionSpec& a = m.layers[i].attention;
    EXPECT_EQ(a.window, windows[i]);
    EXPECT_TRUE(a.sinks && a.qkv_bias && a.output_bias);
    EXPECT_EQ(a.qk_norm, QkNorm::none);
    EXPECT_FLOAT_EQ(a.scale, 0.125f);
    EXPECT_EQ(a.rope.config.type, ckpt::RopeType::yarn);
    EXPECT_FALSE(a.rope.config.truncate);
    EXPECT_TRUE(m.layers[i].router_bias);
    EXPECT_FALSE(m.layers[i].shared || m.layers[i].correction_bias);
    const LayerSpec* moe = m.layers[i].moe();
    ASSERT_NE(moe, nullptr);
    EXPECT_EQ(moe->intermediate, 2880);
    EXPECT_TRUE(moe->has_bias);
    EXPECT_EQ(moe->activation.kind, ActivationKind::swiglu_oai);
    EXPECT_EQ(moe->activation.alpha, 1.702f);
    EXPECT_EQ(moe->activation.beta, 1.0f);
    EXPECT_EQ(moe->activation.limit, 7.0f);
    EXPECT_EQ(moe->routing.method, RoutingMethod::topk_softmax);
    EXPECT_EQ(moe->routing.experts, 32);
    EXPECT_EQ(moe->routing.top_k, 4);
  }
}

TEST(GptOss, WhatMayBeLeftOut) {
  const Sample no_types =
      kGptOss.without(R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"],)");
  EXPECT_EQ(no_types.configure().layers[0].attention.window, 128);
  EXPECT_EQ(no_types.configure().layers[1].attention.window, 0);
  EXPECT_EQ(kGptOss.without(R"("swiglu_limit": 7.0,)").configure().layers[0].moe()->activation.limit, 7.0f);
  EXPECT_EQ(kGptOss.without(R"("num_experts_per_tok": 4,)").configure().layers[0].moe()->routing.top_k, 4);
}

TEST(GptOss, RefusalsNameTheField) {
  expect_error(kGptOss.with(R"(["sliding_attention", "full)", R"(["chunked_attention", "full)"), ErrorCode::unsupported,
               "layer_types: \"chunked_attention\"");
  expect_error(kGptOss.with(R"("full_attention", )", ""), ErrorCode::bad_input, "layer_types: 2 entries");
  expect_error(kGptOss.without(R"("sliding_window": 128,)"), ErrorCode::bad_input, "sliding_window");
  expect_error(kGptOss.with(R"("num_experts_per_tok": 4)", R"("num_experts_per_tok": 33)"), ErrorCode::bad_input,
               "num_experts_per_tok");
}

const Sample kMixtral{mixtral_family, R"({
  "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
  "num_hidden_layers": 2, "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32000})"};

TEST(Mixtral, AsPublished) {
  const ModelConfig m = kMixtral.configure();
  ASSERT_EQ(m.layers.size(), 2u);
  EXPECT_EQ(m.layers[1].attention.head_dim, 128);
  EXPECT_EQ(m.layers[1].attention.window, 0);
  EXPECT_FALSE(m.layers[1].attention.qkv_bias || m.layers[1].attention.output_bias);
  const LayerSpec* moe = m.layers[1].moe();
  ASSERT_NE(moe, nullptr);
  EXPECT_EQ(moe->routing.experts, 8);
  EXPECT_TRUE(moe->routing.renormalize);
  EXPECT_EQ(
      kMixtral.with("\"sliding_window\": null", "\"sliding_window\": 4096").configure().layers[0].attention.window,
      4096);
}

const Sample kQwen2{qwen2_moe_family, R"({
  "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu",
  "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
  "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
  "num_experts_per_tok": 4, "num_hidden_layers": 3, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
  "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"};

TEST(Qwen2Moe, AsPublished) {
  const ModelConfig m = kQwen2.configure();
  const BlockSpec& block = m.layers.at(2);
  EXPECT_TRUE(block.attention.qkv_bias);
  EXPECT_FALSE(block.attention.output_bias);
  EXPECT_EQ(block.attention.window, 0);
  ASSERT_NE(block.moe(), nullptr);
  EXPECT_EQ(block.moe()->intermediate, 1408);
  EXPECT_FALSE(block.moe()->routing.renormalize);
  ASSERT_TRUE(block.shared);
  EXPECT_TRUE(block.shared->output_gate);
  EXPECT_EQ(block.shared->ffn.intermediate, 5632);
  const ModelConfig sparse = kQwen2.with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2").configure();
  EXPECT_EQ(sparse.layers[0].moe(), nullptr);
  EXPECT_FALSE(sparse.layers[0].shared);
  EXPECT_NE(sparse.layers[1].moe(), nullptr);
}

TEST(Qwen2Moe, RefusalsNameTheField) {
  expect_error(kQwen2.with("\"use_sliding_window\": false", "\"use_sliding_window\": true"), ErrorCode::unsupported,
               "use_sliding_window is set");
  expect_error(kQwen2.without("\"shared_expert_intermediate_size\": 5632,"), ErrorCode::bad_input,
               "shared_expert_intermediate_size");
}

const Sample kOlmoe{olmoe_family, R"({
  "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "attention_bias": false, "clip_qkv": null,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096,
  "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
  "num_hidden_layers": 2, "num_key_value_heads": 16, "rope_scaling": null, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "vocab_size": 50304})"};

TEST(Olmoe, AsPublished) {
  const ModelConfig m = kOlmoe.configure();
  EXPECT_FLOAT_EQ(m.norm_epsilon, 1e-5f);  // the default of this family
  EXPECT_EQ(m.layers.at(1).attention.qk_norm, QkNorm::whole_width);
  ASSERT_NE(m.layers[1].moe(), nullptr);
  EXPECT_EQ(m.layers[1].moe()->intermediate, 1024);
  EXPECT_FALSE(m.layers[1].moe()->routing.renormalize);
}

TEST(Olmoe, ClippingIsRefused) {
  expect_error(kOlmoe.with("\"clip_qkv\": null", "\"clip_qkv\": 8.0"), ErrorCode::unsupported,
               "clip_qkv is set; expected null or false; not supported yet: clamping of queries");
}

const Sample kGlm{glm4_moe_family, R"({
  "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": true,
  "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10944,
  "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128,
  "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8,
  "num_hidden_layers": 3, "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 1.0, "topk_group": 1,
  "tie_word_embeddings": false, "use_qk_norm": false, "vocab_size": 151552})"};

TEST(Glm4Moe, AsPublished) {
  const ModelConfig m = kGlm.configure();
  ASSERT_EQ(m.layers.size(), 3u);
  ASSERT_NE(m.layers[0].dense(), nullptr);
  EXPECT_EQ(m.layers[0].dense()->intermediate, 10944);
  const BlockSpec& block = m.layers[1];
  EXPECT_EQ(block.attention.rope.rotary_dim, 64);
  EXPECT_EQ(block.attention.qk_norm, QkNorm::none);
  EXPECT_TRUE(block.attention.qkv_bias);
  EXPECT_FALSE(block.attention.output_bias);
  EXPECT_TRUE(block.correction_bias);
  ASSERT_NE(block.moe(), nullptr);
  const RoutingSpec& r = block.moe()->routing;
  EXPECT_EQ(r.method, RoutingMethod::grouped_top2);
  EXPECT_EQ(r.scoring, Scoring::sigmoid);
  EXPECT_TRUE(r.renormalize);
  EXPECT_EQ(r.routed_scaling_factor, 1.0f);
  ASSERT_TRUE(block.shared);
  EXPECT_FALSE(block.shared->output_gate);
  EXPECT_EQ(block.shared->ffn.intermediate, 1408);
}

TEST(Glm4Moe, Options) {
  const Sample larger = kGlm.with("\"use_qk_norm\": false", "\"use_qk_norm\": true")
                            .with("\"routed_scaling_factor\": 1.0", "\"routed_scaling_factor\": 2.5")
                            .with("\"n_shared_experts\": 1", "\"n_shared_experts\": 2");
  const BlockSpec block = larger.configure().layers[2];
  EXPECT_EQ(block.attention.qk_norm, QkNorm::per_head);
  EXPECT_EQ(block.moe()->routing.routed_scaling_factor, 2.5f);
  EXPECT_EQ(block.shared->ffn.intermediate, 2816);
  EXPECT_FALSE(kGlm.with("\"n_shared_experts\": 1", "\"n_shared_experts\": 0").configure().layers[1].shared);
  expect_error(kGlm.with("\"n_group\": 1", "\"n_group\": 3"), ErrorCode::bad_input, "groups is 3");
  // Named in the configuration and absent from the file, or the other way round: the layer is left out either way.
  EXPECT_TRUE(ckpt::matches(kGlm.family().names(kGlm.configure()).ignored.back(), "model.layers.3.eh_proj.weight"));
}

// Fields that a file leaves out have the family's value, not one value for all: those of transformers' classes.
TEST(Families, DefaultsOfTheirOwn) {
  const ModelConfig mixtral =
      kMixtral.without(R"("rope_theta": 1000000.0,)").without(R"("rms_norm_eps": 1e-05,)").configure();
  EXPECT_EQ(mixtral.layers[0].attention.rope.config.theta, 1e6);
  EXPECT_FLOAT_EQ(mixtral.norm_epsilon, 1e-5f);
  const ModelConfig glm = kGlm.without(R"("partial_rotary_factor": 0.5,)")
                              .without(R"("first_k_dense_replace": 1,)")
                              .without(R"("n_shared_experts": 1,)")
                              .without(R"("rms_norm_eps": 1e-05,)")
                              .configure();
  EXPECT_EQ(glm.layers[0].attention.rope.rotary_dim, 64);
  EXPECT_NE(glm.layers[0].dense(), nullptr);
  EXPECT_TRUE(glm.layers[1].shared.has_value());
  EXPECT_FLOAT_EQ(glm.norm_epsilon, 1e-5f);
  const ModelConfig gpt = kGptOss.without(R"("rope_theta": 150000, )").without(R"("rms_norm_eps": 1e-05,)").configure();
  EXPECT_EQ(gpt.layers[0].attention.rope.config.theta, 150000.0);
  EXPECT_FLOAT_EQ(gpt.norm_epsilon, 1e-5f);
}

TEST(GptOss, RopeParametersMayNotBeGuessed) {
  const std::string yarn =
      R"("rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "rope_type": "yarn", "truncate": false},)";
  expect_error(kGptOss.without(yarn), ErrorCode::bad_input, "rope_scaling: missing");
  expect_error(kGptOss
                   .with(yarn, R"("rope_parameters": {"full_attention": {"rope_type": "default"},
    "sliding_attention": {"rope_type": "default", "rope_theta": 7}},)")
                   .without(R"("rope_theta": 150000, )"),
               ErrorCode::unsupported, "differ");
}

TEST(GptOss, WithoutWindowedLayersNoWindowIsNeeded) {
  const ModelConfig m = kGptOss
                            .with(R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"])",
                                  R"("layer_types": ["full_attention", "full_attention", "full_attention"])")
                            .with(R"("sliding_window": 128)", R"("sliding_window": null)")
                            .configure();
  EXPECT_EQ(m.layers[0].attention.window, 0);
}

}  // namespace
}  // namespace sluice::model
