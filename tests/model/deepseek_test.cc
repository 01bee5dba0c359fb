// DeepSeek-V2 and V3: the bundled model against its reference, shared experts among the routed ones, and faults put in
// on purpose that the comparison with the goldens of transformers must notice.
//
// Faults of the code that were put in by hand, one at a time, seen failing here or in families_golden_test.cc and taken
// out again: the correction bias added to the weights (routing.cc); the norm of the latent left out; key and value rows
// of kv_b exchanged; the rope columns of a query not copied behind its absorbed part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "model/golden.h"
#include "model/shared_fusion.h"

namespace sluice::testing {
namespace {

double log_softmax(const float* logits, std::int64_t vocab, std::int32_t token) {
  const double largest = *std::max_element(logits, logits + vocab);
  double sum = 0.0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - largest);
  return logits[token] - largest - std::log(sum);
}

struct Differences {
  double mean = 0.0;
  double p99 = 0.0;
  double last_l2 = 0.0;  // largest of the prompts
};

// Of the log-probabilities of all prompt tokens, and of the last logits, to transformers in float32.
Differences against_reference(const model::Decoder& decoder) {
  constexpr std::int64_t kVocab = 1024;
  std::vector<double> all;
  Differences d;
  for (const ReferencePrompt& prompt : read_references(bundled_model("deepseek_v3"))) {
    const std::vector<float> logits = prompt_logits(decoder, prompt.input_ids, 512);
    for (std::size_t i = 0; i + 1 < prompt.input_ids.size(); ++i) {
      const double found = log_softmax(logits.data() + i * kVocab, kVocab, prompt.input_ids[i + 1]);
      all.push_back(std::abs(found - prompt.logprob_of_next[i]));
    }
    d.last_l2 = std::max(d.last_l2, relative_l2({logits.end() - kVocab, logits.end()}, prompt.last_logits));
  }
  std::sort(all.begin(), all.end());
  for (const double x : all) d.mean += x / static_cast<double>(all.size());
  d.p99 = all[all.size() * 99 / 100];
  return d;
}

TestDecoder bundled(DType compute, bool fused) {
  TestDecoderOptions options;
  options.compute = compute;
  if (fused) options.change_config = [](model::ModelConfig& c) { model::fuse_shared_experts(c); };
  return load_test_decoder(bundled_model("deepseek_v3"), options);
}

// Bounds are those of the issue that asked for the family.
TEST(DeepseekReference, Bf16) {
  for (const bool fused : {false, true}) {
    const Differences d = against_reference(*bundled(DType::bf16, fused).decoder);
    EXPECT_LE(d.mean, 2.5e-4) << fused;
    EXPECT_LE(d.p99, 5e-3) << fused;
  }
}

TEST(DeepseekReference, Float32) {
  for (const bool fused : {false, true}) {
    EXPECT_LE(against_reference(*bundled(DType::f32, fused).decoder).last_l2, 2e-5) << fused;
  }
}

TEST(DeepseekReference, BitsDoNotDependOnChunksOrThreads) {
  const TestDecoder t = bundled(DType::bf16, false);
  TestDecoderOptions one;
  one.threads = 1;
  one.block_tokens = 64;
  const TestDecoder other = load_test_decoder(bundled_model("deepseek_v3"), one);
  const std::vector<std::int32_t> prompt = read_references(bundled_model("deepseek_v3")).back().input_ids;
  const std::vector<float> whole = prompt_logits(*t.decoder, prompt, 1024);
  for (const std::int64_t chunk : {13, 300}) EXPECT_EQ(prompt_logits(*t.decoder, prompt, chunk), whole) << chunk;
  EXPECT_EQ(prompt_logits(*other.decoder, prompt, 100), whole);
}

TEST(DeepseekReference, CacheHoldsTheLatent) {
  const TestDecoder t = bundled(DType::bf16, false);
  EXPECT_EQ(t.decoder->kv_bytes_per_token(), 4 * (128 + 32) * 2);
}

TEST(SharedFusion, EveryTokenChoosesTheSharedExpert) {
  const TestDecoder t = bundled(DType::bf16, true);
  const model::BlockSpec& block = t.config.layers[1];
  EXPECT_FALSE(block.shared);
  ASSERT_EQ(block.moe()->routing.slots(), 5);
  EXPECT_EQ(t.decoder->moe_layer(1)->problem().layer.routing.total_experts(), 17);
  EXPECT_EQ(t.decoder->weight_bytes().experts, 3 * 17 * t.decoder->expert_bytes(1));
}

// Two shared experts in one tensor: each gets its rows of gate and up and its columns of down.
TEST(SharedFusion, SeveralSharedExperts) {
  for (const std::string family : {"deepseek_v2", "deepseek_v2_lite"}) {
    const GoldenFolder folder({family});
    TestDecoderOptions options;
    options.compute = DType::f32;
    options.change_config = [](model::ModelConfig& c) { model::fuse_shared_experts(c); };
    const TestDecoder t = load_test_decoder(folder.path(), options);
    EXPECT_EQ(t.config.layers.back().moe()->routing.fused_shared, 2);
    EXPECT_LE(compare_golden(*t.decoder, golden_prompts(family), 1024).worst, 2e-5);
  }
}

TEST(SharedFusion, RefusesWhatIsNotAlike) {
  const auto refusal = [](const std::function<void(model::BlockSpec&, LayerSpec&)>& change) {
    model::BlockSpec block;
    LayerSpec spec;
    spec.intermediate = 64;
    block.shared = model::SharedExpertSpec{{128, {}}, false};
    change(block, spec);
    block.ffn = spec;
    model::ModelConfig config;
    config.layers = {block};
    try {
      model::fuse_shared_experts(config);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported);
      return std::string(e.what());
    }
    return std::string();
  };
  using Block = model::BlockSpec;
  EXPECT_EQ(refusal([](Block&, LayerSpec&) {}), "");
  EXPECT_NE(refusal([](Block& b, LayerSpec&) { b.shared->ffn.intermediate = 100; }).find("intermediate size 100"),
            std::string::npos);
  EXPECT_NE(refusal([](Block& b, LayerSpec&) { b.shared->ffn.activation.limit = 10; }).find("clamp"),
            std::string::npos);
  EXPECT_NE(refusal([](Block& b, LayerSpec&) { b.shared->output_gate = true; }).find("gate"), std::string::npos);
  EXPECT_NE(refusal([](Block&, LayerSpec& l) { l.has_bias = true; }).find("biases"), std::string::npos);
}

struct Fault {
  std::string family;
  std::string name;
  std::function<void(model::BlockSpec&)> change;
};

std::function<void(model::BlockSpec&)> routing(std::function<void(RoutingSpec&)> change) {
  return [change](model::BlockSpec& block) {
    if (auto* layer = std::get_if<LayerSpec>(&block.ffn)) change(layer->routing);
  };
}

std::function<void(model::BlockSpec&)> attention(std::function<void(model::AttentionSpec&)> change) {
  return [change](model::BlockSpec& block) { change(block.attention); };
}

std::vector<Fault> faults() {
  const auto plain_scale = attention([](model::AttentionSpec& a) { a.scale = 1 / std::sqrt(float(a.head_dim)); });
  std::vector<Fault> all;
  for (const std::string f : {"deepseek_v3", "deepseek_v2"}) {
    const std::vector<Fault> both = {
        {f, "groups_ignored", routing([](RoutingSpec& r) { r.groups = r.top_groups = 1; })},
        {f, "one_group_more", routing([](RoutingSpec& r) { r.top_groups += 1; })},
        {f, "scaling_lost", routing([](RoutingSpec& r) { r.routed_scaling_factor = 1.0f; })},
        {f, "scaled_twice", routing([](RoutingSpec& r) { r.routed_scaling_factor *= r.routed_scaling_factor; })},
        {f, "renormalisation_turned_round", routing([](RoutingSpec& r) { r.renormalize = !r.renormalize; })},
        {f, "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
        {f, "shared_dropped", [](model::BlockSpec& b) { b.shared.reset(); }},
        {f, "mscale_missing", plain_scale},
        {f, "cos_and_sin_unscaled", attention([](model::AttentionSpec& a) { a.rope.config.attention_factor = 1.0; })},
        {f, "rope_unscaled", attention([](model::AttentionSpec& a) { a.rope.config.type = ckpt::RopeType::plain; })},
        {f, "rotated_halves", attention([](model::AttentionSpec& a) { a.rope.interleaved = false; })},
        {f, "norm_of_latents", attention([](model::AttentionSpec& a) { a.mla->norm_epsilon = 1.0f; })},
    };
    all.insert(all.end(), both.begin(), both.end());
  }
  all.push_back({"deepseek_v3", "correction_bias_ignored", [](model::BlockSpec& b) { b.correction_bias = false; }});
  all.push_back({"deepseek_v3", "best_of_each_group", [](model::BlockSpec& b) {
                   b.correction_bias = false;
                   routing([](RoutingSpec& r) { r.method = RoutingMethod::grouped_max; })(b);
                 }});
  return all;
}

class DeepseekFaults : public ::testing::TestWithParam<Fault> {};

// What passes is below 2e-5; a fault must stand out from that by far.
TEST_P(DeepseekFaults, AreNoticed) {
  const std::string& family = GetParam().family;
  const GoldenFolder folder({family});
  TestDecoderOptions options;
  options.compute = DType::f32;
  options.change_config = [](model::ModelConfig& config) {
    for (model::BlockSpec& block : config.layers) GetParam().change(block);
  };
  const TestDecoder t = load_test_decoder(folder.path(), options);
  const double found = compare_golden(*t.decoder, golden_prompts(family), 1024).worst;
  EXPECT_TRUE(found > 1e-3 || std::isnan(found)) << found;
}

INSTANTIATE_TEST_SUITE_P(Families, DeepseekFaults, ::testing::ValuesIn(faults()),
                         [](const auto& each) { return each.param.family + "_" + each.param.name; });

}  // namespace
}  // namespace sluice::testing
