// Faults that happen to others, put in on purpose: the comparison with the goldens must notice each. The first list
// changes what a family makes of config.json, the second how tensors are named.
//
// Faults of the code itself were put in by hand, one at a time; each made Golden.LogitsOfEveryPosition fail for the
// families named, and was taken out again:
//   the gate clamped from below too; up clamped from above only; no "+ beta"          gpt_oss
//   the router's bias not added; the sink of another head                             gpt_oss
//   the window counts one key more                                                    gpt_oss, mixtral
//   the correction bias as a part of the weight                                       deepseek_v3, glm4_moe
//   scaling before renormalisation, which undoes it                                   deepseek_v3, glm4_moe
//   a group scored by its largest expert alone                                        deepseek_v3, glm4_moe
//   scaling only where weights are renormalised                                       deepseek_v2
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "model/golden.h"

namespace sluice::testing {
namespace {

// What passes is below 2e-5; a fault must stand out from that by far.
constexpr double kNoticed = 1e-3;

double difference(const std::string& family, const TestDecoderOptions& options) {
  const GoldenFolder folder({family});
  const TestDecoder t = load_test_decoder(folder.path(), options);
  return compare_golden(*t.decoder, golden_prompts(family), 1024).worst;
}

struct Fault {
  std::string family;
  std::string name;
  std::function<void(model::BlockSpec&)> change;
};

// Access to what faults change, for blocks that have it.
std::function<void(model::BlockSpec&)> experts(std::function<void(LayerSpec&)> change) {
  return [change](model::BlockSpec& block) {
    if (auto* layer = std::get_if<LayerSpec>(&block.ffn)) change(*layer);
  };
}

std::function<void(model::BlockSpec&)> routing(std::function<void(RoutingSpec&)> change) {
  return experts([change](LayerSpec& layer) { change(layer.routing); });
}

std::function<void(model::BlockSpec&)> attention(std::function<void(model::AttentionSpec&)> change) {
  return [change](model::BlockSpec& block) { change(block.attention); };
}

std::vector<Fault> gpt_oss_faults() {
  const std::string f = "gpt_oss";
  return {
      {f, "clamp_dropped", experts([](LayerSpec& l) { l.activation.limit = std::numeric_limits<float>::infinity(); })},
      {f, "alpha_1", experts([](LayerSpec& l) { l.activation.alpha = 1.0f; })},
      {f, "no_plus_1", experts([](LayerSpec& l) { l.activation.beta = 0.0f; })},
      {f, "plain_swiglu", experts([](LayerSpec& l) { l.activation.kind = ActivationKind::swiglu; })},
      {f, "expert_bias_dropped", experts([](LayerSpec& l) { l.has_bias = false; })},
      {f, "router_bias_dropped", [](model::BlockSpec& b) { b.router_bias = false; }},
      {f, "attention_bias_dropped", attention([](model::AttentionSpec& a) { a.qkv_bias = false; })},
      {f, "output_bias_dropped", attention([](model::AttentionSpec& a) { a.output_bias = false; })},
      {f, "sinks_dropped", attention([](model::AttentionSpec& a) { a.sinks = false; })},
      {f, "window_one_more", attention([](model::AttentionSpec& a) { a.window += a.window > 0 ? 1 : 0; })},
      {f, "window_one_less", attention([](model::AttentionSpec& a) { a.window -= a.window > 0 ? 1 : 0; })},
      {f, "window_dropped", attention([](model::AttentionSpec& a) { a.window = 0; })},
      {f, "window_everywhere", attention([](model::AttentionSpec& a) { a.window = 12; })},
      {f, "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
      {f, "softmax_over_all_experts", routing([](RoutingSpec& r) { r.method = RoutingMethod::score_topk; })},
      {f, "yarn_truncated", attention([](model::AttentionSpec& a) { a.rope.config.truncate = true; })},
      {f, "yarn_attention_factor_1", attention([](model::AttentionSpec& a) { a.rope.config.attention_factor = 1.0; })},
      {f, "rope_unscaled", attention([](model::AttentionSpec& a) { a.rope.config.type = ckpt::RopeType::plain; })},
  };
}

std::vector<Fault> softmax_faults() {
  return {
      {"mixtral", "not_renormalised", routing([](RoutingSpec& r) { r.renormalize = false; })},
      {"mixtral", "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
      {"mixtral", "window_one_more", attention([](model::AttentionSpec& a) { a.window += 1; })},
      {"mixtral", "window_dropped", attention([](model::AttentionSpec& a) { a.window = 0; })},
      {"qwen2_moe", "renormalised", routing([](RoutingSpec& r) { r.renormalize = true; })},
      {"qwen2_moe", "softmax_over_chosen", routing([](RoutingSpec& r) { r.method = RoutingMethod::topk_softmax; })},
      {"qwen2_moe", "bias_dropped", attention([](model::AttentionSpec& a) { a.qkv_bias = false; })},
      {"qwen2_moe", "shared_dropped", [](model::BlockSpec& b) { b.shared.reset(); }},
      {"qwen2_moe", "shared_not_gated",
       [](model::BlockSpec& b) {
         if (b.shared) b.shared->output_gate = false;
       }},
      {"qwen3_moe", "not_renormalised", routing([](RoutingSpec& r) { r.renormalize = false; })},
      {"qwen3_moe", "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
      {"qwen3_moe", "no_qk_norm", attention([](model::AttentionSpec& a) { a.qk_norm = model::QkNorm::none; })},
      {"olmoe", "renormalised", routing([](RoutingSpec& r) { r.renormalize = true; })},
      {"olmoe", "no_qk_norm", attention([](model::AttentionSpec& a) { a.qk_norm = model::QkNorm::none; })},
  };
}

std::vector<Fault> glm_faults() {
  const std::string f = "glm4_moe";
  return {
      {f, "groups_ignored", routing([](RoutingSpec& r) { r.groups = r.top_groups = 1; })},
      {f, "one_group_more", routing([](RoutingSpec& r) { r.top_groups += 1; })},
      {f, "correction_bias_ignored", [](model::BlockSpec& b) { b.correction_bias = false; }},
      {f, "scaling_lost", routing([](RoutingSpec& r) { r.routed_scaling_factor = 1.0f; })},
      {f, "scaled_twice", routing([](RoutingSpec& r) { r.routed_scaling_factor *= r.routed_scaling_factor; })},
      {f, "not_renormalised", routing([](RoutingSpec& r) { r.renormalize = false; })},
      {f, "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
      {f, "softmax_scores", routing([](RoutingSpec& r) { r.scoring = Scoring::softmax; })},
      {f, "shared_dropped", [](model::BlockSpec& b) { b.shared.reset(); }},
      {f, "no_qk_norm", attention([](model::AttentionSpec& a) { a.qk_norm = model::QkNorm::none; })},
      {f, "whole_head_rotated", attention([](model::AttentionSpec& a) { a.rope.rotary_dim = a.head_dim; })},
      {f, "pairs_interleaved", attention([](model::AttentionSpec& a) { a.rope.interleaved = true; })},
      {f, "bias_dropped", attention([](model::AttentionSpec& a) { a.qkv_bias = false; })},
  };
}

std::vector<Fault> deepseek_faults() {
  const auto attention_scale = [](model::AttentionSpec& a) {
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  };
  const auto twice = [](RoutingSpec& r) { r.routed_scaling_factor *= r.routed_scaling_factor; };
  const auto plain_rope = [](model::AttentionSpec& a) { a.rope.config.type = ckpt::RopeType::plain; };
  return {
      {"deepseek_v3", "mscale_missing", attention(attention_scale)},
      {"deepseek_v3", "rope_unscaled", attention(plain_rope)},
      {"deepseek_v3", "rope_not_interleaved", attention([](model::AttentionSpec& a) { a.rope.interleaved = false; })},
      {"deepseek_v3", "groups_ignored", routing([](RoutingSpec& r) { r.groups = r.top_groups = 1; })},
      {"deepseek_v3", "correction_bias_ignored", [](model::BlockSpec& b) { b.correction_bias = false; }},
      {"deepseek_v3", "scaling_lost", routing([](RoutingSpec& r) { r.routed_scaling_factor = 1.0f; })},
      {"deepseek_v3", "scaled_twice", routing(twice)},
      {"deepseek_v3", "not_renormalised", routing([](RoutingSpec& r) { r.renormalize = false; })},
      {"deepseek_v3", "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
      {"deepseek_v3", "shared_dropped", [](model::BlockSpec& b) { b.shared.reset(); }},
      {"deepseek_v2", "mscale_missing", attention(attention_scale)},
      {"deepseek_v2", "groups_ignored", routing([](RoutingSpec& r) { r.groups = r.top_groups = 1; })},
      {"deepseek_v2", "scaling_lost", routing([](RoutingSpec& r) { r.routed_scaling_factor = 1.0f; })},
      {"deepseek_v2", "renormalised", routing([](RoutingSpec& r) { r.renormalize = true; })},
      {"deepseek_v2_lite", "renormalised", routing([](RoutingSpec& r) { r.renormalize = true; })},
      {"deepseek_v2_lite", "one_expert_less", routing([](RoutingSpec& r) { r.top_k -= 1; })},
  };
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all = gpt_oss_faults();
  for (const auto& more : {softmax_faults(), glm_faults(), deepseek_faults()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

class ConfigFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(ConfigFaults, AreNoticed) {
  TestDecoderOptions options;
  options.compute = DType::f32;
  options.change_config = [](model::ModelConfig& config) {
    for (model::BlockSpec& block : config.layers) GetParam().change(block);
  };
  const double found = difference(GetParam().family, options);
  EXPECT_TRUE(found > kNoticed || std::isnan(found)) << found;
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigFaults, ::testing::ValuesIn(all_faults()),
                         [](const auto& test) { return test.param.family + "_" + test.param.name; });

struct NameFault {
  std::string family;
  std::string name;
  std::function<void(ckpt::ExpertNames&)> change;
};

std::vector<NameFault> name_faults() {
  using Names = ckpt::ExpertNames;
  const auto swap_gate_and_up = [](Names& n) {
    std::swap(n.gate, n.up);
    if (n.gate_up_order == Names::GateUp::gate_then_up) n.gate_up_order = Names::GateUp::up_then_gate;
  };
  return {
      {"mixtral", "w1_w3_swapped", swap_gate_and_up},
      {"olmoe", "gate_up_swapped", swap_gate_and_up},
      {"qwen2_moe", "gate_up_swapped", swap_gate_and_up},
      {"glm4_moe", "gate_up_swapped", swap_gate_and_up},
      // Gate and up together are as wide as the hidden size: no shape tells these.
      {"gpt_oss", "halves_instead_of_interleaved", [](Names& n) { n.gate_up_order = Names::GateUp::gate_then_up; }},
      {"gpt_oss_mxfp4", "halves_instead_of_interleaved",
       [](Names& n) { n.gate_up_order = Names::GateUp::gate_then_up; }},
      {"mixtral_fused", "interleaved_instead_of_halves",
       [](Names& n) { n.gate_up_order = Names::GateUp::interleaved; }},
      {"mixtral_fused", "halves_swapped", [](Names& n) { n.gate_up_order = Names::GateUp::up_then_gate; }},
  };
}

class NameFaults : public ::testing::TestWithParam<NameFault> {};

TEST_P(NameFaults, AreNoticed) {
  const std::string& name = GetParam().family;
  const bool fused = name.find("_fused") != std::string::npos;
  const std::string family = name.substr(0, name.find("_fused"));
  const GoldenFolder folder({family, fused ? "fused" : "experts"});
  TestDecoderOptions options;
  options.compute = DType::f32;
  options.change_names = [](ckpt::NameMap& map) {
    for (ckpt::ExpertNames& names : map.experts) GetParam().change(names);
  };
  const TestDecoder t = load_test_decoder(folder.path(), options);
  EXPECT_GT(compare_golden(*t.decoder, golden_prompts(family), 1024).worst, kNoticed);
}

INSTANTIATE_TEST_SUITE_P(Families, NameFaults, ::testing::ValuesIn(name_faults()),
                         [](const auto& test) { return test.param.family + "_" + test.param.name; });

}  // namespace
}  // namespace sluice::testing
