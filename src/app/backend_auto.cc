// SGLang's automatic choice of a MoE runner, as a table that is read from the top (moe-runner-spec 7.5).
#include <algorithm>
#include <array>

#include "app/backend_names.h"

namespace sluice::app {
namespace {

// A rule holds when every part of it does; an empty part always does. Lists are space-separated.
struct AutoRule {
  std::string_view architectures;
  std::string_view quantizations;  // "None" = none
  int sm_from = 0;
  int sm_to = 1000;
  std::string_view runner;
};

constexpr std::string_view kDeepSeek =
    "DeepseekV3ForCausalLM DeepseekV32ForCausalLM KimiK25ForConditionalGeneration MistralLarge3ForCausalLM "
    "GlmMoeDsaForCausalLM LongcatFlashForCausalLM";
constexpr std::string_view kQwen =
    "Qwen3MoeForCausalLM Qwen3VLMoeForConditionalGeneration Qwen3NextForCausalLM Qwen3_5MoeForCausalLM";

constexpr std::array kRules = {
    AutoRule{"", "mxfp8", 0, 1000, "flashinfer_trtllm"},
    AutoRule{"", "nvfp4_online", 0, 1000, "flashinfer_trtllm"},
    AutoRule{kDeepSeek, "fp8 modelopt_fp8 modelopt_fp4 modelopt_mixed None", 100, 119, "flashinfer_trtllm"},
    AutoRule{"DeepseekV4ForCausalLM", "modelopt_fp4", 0, 1000, "flashinfer_trtllm_routed"},
    AutoRule{"DeepseekV4ForCausalLM", "fp8 mxfp4", 100, 119, "flashinfer_mxfp4"},
    AutoRule{"DeepseekV4ForCausalLM", "fp8 mxfp4", 90, 1000, "marlin"},
    AutoRule{"GptOssForCausalLM", "mxfp4", 100, 1000, "flashinfer_mxfp4"},
    AutoRule{"GptOssForCausalLM", "mxfp4", 0, 99, "triton_kernel"},
    AutoRule{"GptOssForCausalLM", "None", 0, 1000, "triton_kernel"},
    AutoRule{"Llama4ForConditionalGeneration", "fp8 modelopt_fp8", 100, 119, "flashinfer_trtllm"},
    AutoRule{"Gemma4ForConditionalGeneration", "modelopt_fp4", 100, 119, "flashinfer_trtllm"},
    AutoRule{kQwen, "fp8 modelopt_fp8 None", 100, 119, "flashinfer_trtllm"},
    AutoRule{"Glm4MoeForCausalLM", "modelopt_fp4 None", 100, 119, "flashinfer_trtllm"},
    AutoRule{"NemotronHForCausalLM", "", 100, 119, "flashinfer_trtllm"},
    AutoRule{"NemotronHForCausalLM", "modelopt_fp4", 80, 99, "marlin"},
    AutoRule{"NemotronHForCausalLM", "", 0, 1000, "flashinfer_cutlass"},
    AutoRule{"", "modelopt_fp4", 120, 1000, "flashinfer_cutlass"},
    AutoRule{"", "modelopt_fp4", 100, 119, "flashinfer_trtllm"},
    AutoRule{"", "modelopt_fp4", 0, 99, "marlin"},
    AutoRule{"", "moe_wna16 gptq_marlin awq_marlin", 0, 1000, "marlin"},
};

bool listed(std::string_view list, std::string_view word) {
  if (list.empty()) return true;
  const std::size_t at = list.find(word);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + word.size();
  return (at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ');
}

}  // namespace

std::string_view sglang_auto(std::string_view architecture, std::string_view quantization, int sm) {
  const std::string_view asked = quantization.empty() ? "None" : quantization;
  const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const AutoRule& r) {
    return listed(r.architectures, architecture) && listed(r.quantizations, asked) && sm >= r.sm_from && sm <= r.sm_to;
  });
  return rule == kRules.end() ? "triton" : rule->runner;
}

}  // namespace sluice::app
