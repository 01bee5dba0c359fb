#include "checkpoint/quant_config.h"

#include <gtest/gtest.h>

#include "checkpoint/findings.h"
#include "checkpoint/scale_policy.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

QuantConfig from(std::string_view main, std::string_view sidecar = "") {
  const auto fields = [](std::string_view text, const char* origin) {
    return text.empty() ? std::nullopt : std::optional<Fields>(Fields(parse_config_json(text, origin), origin));
  };
  return QuantConfig::from(fields(main, "config"), fields(sidecar, "sidecar"));
}

TEST(ModuleSet, Globs) {
  EXPECT_TRUE(glob_matches("model.layers.61*", "model.layers.61.mlp"));
  EXPECT_FALSE(glob_matches("model.layers.61*", "model.layers.6.mlp"));
  EXPECT_TRUE(glob_matches("*a*b", "xaaxbb"));
  EXPECT_FALSE(glob_matches("*a*b", "xaaxbc"));
  EXPECT_TRUE(glob_matches("?.*", "a."));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_TRUE(glob_matches("**", ""));
}

TEST(ModuleSet, NamesMatchWholeComponents) {
  ModuleSet set;
  for (const char* name : {"lm_head", "model.layers.6", "self_attn", "*.mlp.gate.*", "re:.*k_proj$"})
    set.add(name, "x");
  EXPECT_TRUE(set.contains("lm_head"));
  EXPECT_TRUE(set.contains("model.layers.6.mlp.up_proj"));
  EXPECT_TRUE(set.contains("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(set.contains("model.layers.1.mlp.gate"));
  EXPECT_TRUE(set.contains("model.layers.1.attention.k_proj"));
  EXPECT_FALSE(set.contains("model.layers.61.mlp.up_proj"));
  EXPECT_FALSE(set.contains("model.layers.1.self_attention.q_proj"));
  EXPECT_FALSE(set.contains("model.layers.1.mlp.gate_proj"));
  EXPECT_FALSE(set.contains("model.layers.1.attention.k_proj.more"));
  EXPECT_FALSE(set.contains(""));
}

TEST(ModuleSet, ExpressionsMatchFromTheStart) {
  ModuleSet set;
  set.add("re:layers", "x");
  EXPECT_TRUE(set.contains("layers.1"));
  EXPECT_FALSE(set.contains("model.layers.1"));
}

TEST(ModuleSet, ChildrenOfAStackedModule) {
  ModuleSet set;
  set.add("model.layers.1.mlp.experts.0.gate_proj", "x");
  EXPECT_TRUE(set.contains_child_of("model.layers.1.mlp.experts"));
  EXPECT_FALSE(set.contains_child_of("model.layers.1.mlp.exp"));
  EXPECT_FALSE(set.contains_child_of("model.layers.1.mlp.experts.0.gate_proj"));
}

TEST(QuantConfig, WithoutAnyFileNothingIsSaid) {
  const QuantConfig c = from("");
  EXPECT_EQ(c.method(), QuantMethod::none);
  EXPECT_EQ(c.rule_for("a.b"), nullptr);
  EXPECT_FALSE(c.excludes("a.b"));
  EXPECT_FALSE(c.weight_only());
  EXPECT_EQ(c.description(), "");
}

TEST(QuantConfig, SidecarOfModelOpt) {
  const QuantConfig c = from("", R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
    "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "model.layers.61*"]}})");
  EXPECT_EQ(c.method(), QuantMethod::modelopt);
  EXPECT_EQ(c.kv_cache(), "FP8");
  EXPECT_TRUE(c.excludes("model.layers.61.mlp.experts.0.up_proj"));
  EXPECT_EQ(c.rule_for("lm_head"), nullptr);
  const QuantRule* rule = c.rule_for("model.layers.3.mlp.experts.0.up_proj");
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->format, BlockFormat::nvfp4);
  EXPECT_EQ(rule->inputs, InputScaling::unknown);
  EXPECT_EQ(rule->block_cols, 16);
}

TEST(QuantConfig, WeightOnlyInAllItsSpellings) {
  EXPECT_TRUE(from(R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"})").weight_only());
  EXPECT_TRUE(from(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "with_input_scale": false})").weight_only());
  EXPECT_TRUE(from(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"g": {
    "weights": {"num_bits": 4, "group_size": 16}, "input_activations": null}}})")
                  .weight_only());
  EXPECT_FALSE(from(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").weight_only());
  EXPECT_FALSE(from(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"g": {
    "weights": {"num_bits": 4, "group_size": 16}, "input_activations": {"dynamic": false}}}})")
                   .weight_only());
}

TEST(QuantConfig, GroupsOfCompressedTensors) {
  const QuantConfig c = from(R"({"quant_method": "compressed-tensors", "ignore": ["re:.*gate$"], "config_groups": {
    "a": {"targets": ["re:.*experts.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16},
          "input_activations": {"dynamic": "local"}},
    "b": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
          "input_activations": {"dynamic": true}}}})");
  const QuantRule* experts = c.rule_for("layers.0.experts.1.up_proj");
  const QuantRule* rest = c.rule_for("layers.0.self_attn.q_proj");
  ASSERT_NE(experts, nullptr);
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(experts->format, BlockFormat::nvfp4);
  EXPECT_EQ(experts->inputs, InputScaling::fixed);
  EXPECT_EQ(rest->format, BlockFormat::fp8_row);
  EXPECT_EQ(rest->inputs, InputScaling::dynamic);
  EXPECT_EQ(c.rule_for("layers.0.mlp.gate"), nullptr);
}

TEST(QuantConfig, MixedPrecisionIsTheListedModulesAndWhatLiesInThem) {
  const QuantConfig c = from("", R"({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {
    "layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}, "layers.0.q_proj": {"quant_algo": "FP8"}}}})");
  ASSERT_NE(c.rule_for("layers.0.mlp.experts.7.up_proj"), nullptr);
  EXPECT_EQ(c.rule_for("layers.0.mlp.experts.7.up_proj")->format, BlockFormat::nvfp4);
  ASSERT_NE(c.rule_for("layers.0.q_proj"), nullptr);
  EXPECT_EQ(c.rule_for("layers.0.q_proj")->format, BlockFormat::fp8_tensor);
  EXPECT_EQ(c.rule_for("layers.0.k_proj"), nullptr);
}

TEST(QuantConfig, MethodsByTheirNames) {
  EXPECT_EQ(from(R"({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"})").method(), QuantMethod::modelopt);
  EXPECT_EQ(from(R"({"quant_method": "", "quant_algo": "NVFP4"})").method(), QuantMethod::modelopt);
  EXPECT_EQ(from(R"({"quant_method": "mxfp4"})").method(), QuantMethod::mxfp4);
  EXPECT_EQ(from(R"({"format": "x", "config_groups": {}})").method(), QuantMethod::compressed_tensors);
  EXPECT_EQ(from(R"({"quant_method": "fp8"})", R"({"quantization": {"quant_algo": "NVFP4"}})").method(),
            QuantMethod::fp8);
  expect_contains(message_of([] { from(R"({"quant_method": "gptq"})"); }, ErrorCode::unsupported),
                  "config: quant_method: found \"gptq\"; expected modelopt, compressed-tensors, fp8 or mxfp4");
}

TEST(ScalePolicy, NamesOfRepairs) {
  EXPECT_FALSE(ScalePolicy::parse("strict").fill_missing);
  const ScalePolicy policy = ScalePolicy::parse("clamp-denormal,fill-missing");
  EXPECT_TRUE(policy.fill_missing && policy.clamp_denormal);
  EXPECT_FALSE(policy.fill_invalid || policy.weight_only);
  for (const char* bad : {"", "fill-missing,", "strict,fill-missing", "Fill-Missing"}) {
    expect_contains(message_of([&] { ScalePolicy::parse(bad); }, ErrorCode::usage), "scale policy");
  }
}

TEST(ScalePolicy, Faults) {
  EXPECT_EQ(fault_of(1.0f), ScaleFault::none);
  EXPECT_EQ(fault_of(1.17549435e-38f), ScaleFault::none);
  EXPECT_EQ(fault_of(1e-39f), ScaleFault::denormal);
  EXPECT_EQ(fault_of(-1e-39f), ScaleFault::negative);
  EXPECT_EQ(fault_of(-0.0f), ScaleFault::zero);
  EXPECT_EQ(fault_of(-1.0f), ScaleFault::negative);
  EXPECT_EQ(fault_of(1.0f / 0.0f), ScaleFault::infinite);
  EXPECT_EQ(fault_of(0.0f / 0.0f), ScaleFault::nan);
}

TEST(FindingList, MergesWhatDiffersInNumbersOnly) {
  FindingList list;
  for (int e = 0; e < 8; ++e) {
    list.add({Severity::error,
              FindingKind::scale,
              "m" + std::to_string(e),
              "layers.3.experts." + std::to_string(e),
              "f",
              1,
              {}});
  }
  list.add({Severity::warning, FindingKind::scale, "m", "layers.3.experts.1", "f", 1, {}});
  list.add({Severity::error, FindingKind::scale, "m", "layers.3.shared", "f", 1, {}});
  ASSERT_EQ(list.all().size(), 3u);
  EXPECT_EQ(list.all()[0].count, 8);
  EXPECT_EQ(list.all()[0].message, "m0");
  EXPECT_EQ(list.all()[0].tensors.size(), 5u);
  EXPECT_EQ(list.all()[0].tensors[4], "layers.3.experts.4");
}

}  // namespace
}  // namespace sluice::ckpt
