// SGLang's names: what each stands for, and the validation and selection tables (moe-runner-spec 7.2, 7.5, 7.6).
#include "app/backend_names.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::app {
namespace {

using F = WeightFormat;

void expect_refused(const LaunchRequest& request, F format, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    check_launch(request, format);
    ADD_FAILURE() << request.backend << " " << request.quantization << " accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

LaunchRequest launch(std::string_view backend, std::string_view quantization = "") {
  LaunchRequest r;
  r.backend = backend;
  r.quantization = quantization;
  return r;
}

// Every name of moe-runner-spec 1.6 is known, and no name twice.
TEST(BackendNames, AreThoseOfSglang) {
  for (const char* name :
       {"deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass",
        "flashinfer_mxfp4", "flashinfer_cutedsl", "cutlass", "marlin", "aiter", "experimental_sgl_trtllm",
        "experimental_sgl_marlin", "humming", "hpc_ops", "intel_xpu", "megamoe"}) {
    EXPECT_NE(find_backend(name), nullptr) << name;
  }
  EXPECT_EQ(backend_names().size(), 17u);
  for (std::size_t i = 0; i < backend_names().size(); ++i) {
    EXPECT_EQ(find_backend(backend_names()[i].name), &backend_names()[i]);
  }
}

struct Stands {
  const char* backend;
  F format;
  Recipe recipe;
};

TEST(BackendNames, StandForRecipes) {
  const Stands table[] = {{"flashinfer_cutedsl", F::nvfp4, Recipe::nvfp4_w4a4_cutedsl},
                          {"flashinfer_cutlass", F::nvfp4, Recipe::nvfp4_w4a4_cutlass},
                          {"flashinfer_cutlass", F::fp8_tensor, Recipe::fp8_tensor},
                          {"flashinfer_cutlass", F::bf16, Recipe::bf16},
                          {"flashinfer_mxfp4", F::mxfp4, Recipe::mxfp4_w4a8},
                          {"flashinfer_trtllm", F::nvfp4, Recipe::nvfp4_w4a4_cutedsl},
                          {"flashinfer_trtllm", F::fp8_block, Recipe::fp8_block},
                          {"cutlass", F::nvfp4, Recipe::nvfp4_w4a4_cutlass},
                          {"marlin", F::nvfp4, Recipe::nvfp4_w4a16},
                          {"marlin", F::mxfp4, Recipe::mxfp4_w4a16},
                          {"triton_kernel", F::mxfp4, Recipe::mxfp4_w4a16},
                          {"triton", F::fp8_block, Recipe::fp8_block},
                          {"deep_gemm", F::fp8_block, Recipe::fp8_block}};
  for (const Stands& s : table) {
    EXPECT_NO_THROW(check_launch(launch(s.backend), s.format)) << s.backend;
    EXPECT_EQ(recipe_of(launch(s.backend), s.format), s.recipe) << s.backend;
  }
  LaunchRequest bf16 = launch("flashinfer_mxfp4");
  bf16.mxfp4_precision = "bf16";
  EXPECT_EQ(recipe_of(bf16, F::mxfp4), Recipe::mxfp4_w4a16);
  bf16.mxfp4_precision = "int8";
  expect_refused(bf16, F::mxfp4, ErrorCode::usage, {"default, bf16 or fp8"});
}

TEST(BackendNames, EveryRecipeBelongsToItsColumn) {
  constexpr Recipe recipe_of_column[] = {Recipe::bf16, Recipe::fp8_tensor, Recipe::fp8_block, Recipe::nvfp4_w4a16,
                                         Recipe::mxfp4_w4a16};
  for (const BackendName& b : backend_names()) {
    for (std::size_t f = 0; f < kWeightFormats; ++f) {
      EXPECT_EQ(format_of(b.recipes[f].value_or(recipe_of_column[f])), static_cast<F>(f)) << b.name;
    }
  }
}

// Rows of the validation table.
TEST(CheckLaunch, AllowsWhatSglangAllows) {
  EXPECT_NO_THROW(check_launch(launch("flashinfer_cutlass", "modelopt_fp4"), F::nvfp4));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_cutlass", "modelopt_fp8"), F::fp8_tensor));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_cutlass", "modelopt_mixed"), F::nvfp4));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_cutedsl", "modelopt_fp4"), F::nvfp4));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_cutedsl", "modelopt_mixed"), F::nvfp4));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_trtllm", "compressed-tensors"), F::nvfp4));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_trtllm_routed", "fp8"), F::fp8_block));
  EXPECT_NO_THROW(check_launch(launch("flashinfer_mxfp4", "mxfp4"), F::mxfp4));
  EXPECT_NO_THROW(check_launch(launch("auto", "fp8"), F::fp8_block));
}

TEST(CheckLaunch, RefusesOtherQuantisationsAndSaysWhichWork) {
  const auto code = ErrorCode::unsupported;
  expect_refused(launch("flashinfer_cutlass", "compressed-tensors"), F::nvfp4, code,
                 {"--quantization modelopt_fp4, modelopt_fp8, modelopt_mixed, None", "flashinfer_trtllm"});
  expect_refused(launch("flashinfer_cutlass", "fp8"), F::fp8_tensor, code, {"modelopt_fp8", "triton"});
  expect_refused(launch("flashinfer_cutedsl", "petit_nvfp4"), F::nvfp4, code, {"modelopt_fp4, modelopt_mixed"});
  expect_refused(launch("flashinfer_trtllm_routed", "compressed-tensors"), F::fp8_block, code, {"fp8, mxfp8"});
  expect_refused(launch("flashinfer_mxfp4", "compressed-tensors"), F::mxfp4, code, {"--quantization mxfp4", "marlin"});
}

TEST(CheckLaunch, RefusesFormatsThatTheCheckpointDoesNotHave) {
  const auto code = ErrorCode::unsupported;
  expect_refused(launch("auto", "modelopt_fp4"), F::mxfp4, code, {"stored as mxfp4", "mxfp4, compressed-tensors"});
  expect_refused(launch("auto", "mxfp4"), F::nvfp4, code, {"stored as nvfp4", "modelopt_fp4"});
  expect_refused(launch("auto", "fp8"), F::bf16, code, {"no --quantization", "sluice quantize"});
  expect_refused(launch("flashinfer_cutedsl"), F::mxfp4, code, {"triton_kernel, flashinfer_mxfp4, marlin"});
  expect_refused(launch("marlin"), F::bf16, code, {"triton", "sluice quantize"});
}

TEST(CheckLaunch, RefusesWhatIsNotHereByName) {
  const auto code = ErrorCode::unsupported;
  expect_refused(launch("auto", "nvfp4_online"), F::bf16, code, {"nvfp4_online", "sluice quantize"});
  expect_refused(launch("auto", "awq"), F::bf16, code, {"integer weights"});
  expect_refused(launch("auto", "mxfp8"), F::fp8_block, code, {"MXFP8"});
  expect_refused(launch("megamoe"), F::nvfp4, code, {"one kernel over all ranks"});
  expect_refused(launch("auto", "fp9"), F::bf16, ErrorCode::usage, {"modelopt_fp4"});
  expect_refused(launch("cutedsl"), F::nvfp4, ErrorCode::usage, {"flashinfer_cutedsl"});
}

TEST(CheckLaunch, ExpertParallelOverAllRanksOrNone) {
  for (const char* backend : {"flashinfer_cutlass", "flashinfer_cutedsl"}) {
    LaunchRequest r = launch(backend, "modelopt_fp4");
    for (const int ep : {1, 4}) {
      r.tp = 4, r.ep = ep;
      EXPECT_NO_THROW(check_launch(r, F::nvfp4)) << backend << ep;
    }
    r.ep = 2;
    expect_refused(r, F::nvfp4, ErrorCode::unsupported, {"--ep 2", "--ep 1 or --ep 4"});
  }
  LaunchRequest cutlass = launch("cutlass", "fp8");
  EXPECT_NO_THROW(check_launch(cutlass, F::fp8_block));
  cutlass.tp = cutlass.ep = 2;
  expect_refused(cutlass, F::fp8_block, ErrorCode::unsupported, {"--ep 1"});
  cutlass.quantization = "modelopt_fp4";
  EXPECT_NO_THROW(check_launch(cutlass, F::nvfp4));
}

TEST(CheckLaunch, AllToAllOfCuteDsl) {
  LaunchRequest r = launch("flashinfer_cutedsl", "modelopt_fp4");
  for (const char* a2a : {"none", "deepep", "flashinfer"}) {
    r.a2a = a2a;
    EXPECT_NO_THROW(check_launch(r, F::nvfp4)) << a2a;
  }
  r.a2a = "mooncake";
  expect_refused(r, F::nvfp4, ErrorCode::unsupported, {"none, deepep, flashinfer"});
  r.a2a = "deepep", r.deepep_mode = "normal";
  expect_refused(r, F::nvfp4, ErrorCode::unsupported, {"low_latency"});
  r.deepep_mode = "low_latency";
  EXPECT_NO_THROW(check_launch(r, F::nvfp4));
}

TEST(SharedExpertsFusion, IsOffWhereTheTableSaysSo) {
  for (const char* backend : {"flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed"}) {
    EXPECT_TRUE(disables_shared_experts_fusion(launch(backend))) << backend;
  }
  for (const char* backend : {"auto", "triton", "flashinfer_cutlass", "marlin", "flashinfer_mxfp4"}) {
    EXPECT_FALSE(disables_shared_experts_fusion(launch(backend))) << backend;
  }
  LaunchRequest r = launch("triton");
  for (const char* a2a : {"flashinfer", "deepep_v2"}) {
    r.a2a = a2a;
    EXPECT_TRUE(disables_shared_experts_fusion(r)) << a2a;
  }
  r.a2a = "deepep";
  EXPECT_FALSE(disables_shared_experts_fusion(r));
}

TEST(CheckLaunch, TransportsAskForFormatsAndModels) {
  LaunchRequest r = launch("auto");
  r.a2a = "megamoe";
  for (const F format : {F::bf16, F::fp8_tensor, F::fp8_block}) {
    expect_refused(r, format, ErrorCode::unsupported, {"megamoe", "nvfp4 or mxfp4", "alltoall"});
  }
  for (const F format : {F::nvfp4, F::mxfp4}) EXPECT_NO_THROW(check_launch(r, format));
  r.a2a = "deepep_v2";
  for (const char* architecture : {"DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM", "Qwen3MoeForCausalLM"}) {
    r.architecture = architecture;
    EXPECT_NO_THROW(check_launch(r, F::fp8_block)) << architecture;
  }
  r.architecture = "GptOssForCausalLM";
  expect_refused(r, F::mxfp4, ErrorCode::unsupported, {"deepep_v2 with GptOssForCausalLM", "Qwen3MoeForCausalLM"});
}

struct Auto {
  const char* architecture;
  const char* quantization;
  int sm;
  const char* runner;
};

TEST(SglangAuto, SelectionTable) {
  const Auto table[] = {{"Any", "mxfp8", 100, "flashinfer_trtllm"},
                        {"Any", "nvfp4_online", 100, "flashinfer_trtllm"},
                        {"DeepseekV3ForCausalLM", "", 100, "flashinfer_trtllm"},
                        {"DeepseekV3ForCausalLM", "modelopt_fp4", 103, "flashinfer_trtllm"},
                        {"DeepseekV3ForCausalLM", "fp8", 90, "triton"},
                        {"DeepseekV4ForCausalLM", "modelopt_fp4", 100, "flashinfer_trtllm_routed"},
                        {"DeepseekV4ForCausalLM", "fp8", 100, "flashinfer_mxfp4"},
                        {"DeepseekV4ForCausalLM", "fp8", 90, "marlin"},
                        {"DeepseekV4ForCausalLM", "fp8", 120, "marlin"},
                        {"GptOssForCausalLM", "mxfp4", 100, "flashinfer_mxfp4"},
                        {"GptOssForCausalLM", "mxfp4", 120, "flashinfer_mxfp4"},
                        {"GptOssForCausalLM", "mxfp4", 90, "triton_kernel"},
                        {"GptOssForCausalLM", "", 90, "triton_kernel"},
                        {"Llama4ForConditionalGeneration", "fp8", 100, "flashinfer_trtllm"},
                        {"Gemma4ForConditionalGeneration", "modelopt_fp4", 100, "flashinfer_trtllm"},
                        {"Qwen3MoeForCausalLM", "fp8", 100, "flashinfer_trtllm"},
                        {"Qwen3MoeForCausalLM", "", 90, "triton"},
                        {"Glm4MoeForCausalLM", "", 100, "flashinfer_trtllm"},
                        {"NemotronHForCausalLM", "modelopt_fp4", 90, "marlin"},
                        {"NemotronHForCausalLM", "", 90, "flashinfer_cutlass"},
                        {"Any", "modelopt_fp4", 120, "flashinfer_cutlass"},
                        {"Any", "modelopt_fp4", 80, "marlin"},
                        {"Any", "modelopt_fp4", 100, "flashinfer_trtllm"},
                        {"Any", "moe_wna16", 90, "marlin"},
                        {"Any", "", 90, "triton"}};
  for (const Auto& a : table) {
    EXPECT_EQ(sglang_auto(a.architecture, a.quantization, a.sm), a.runner)
        << a.architecture << " " << a.quantization << " " << a.sm;
  }
}

// Below SM100 SGLang's automatic runner computes what our automatic recipe computes.
TEST(SglangAuto, BelowSm100HasTheRecipesOfOurAuto) {
  const std::pair<const char*, Recipe> table[] = {
      {"modelopt_fp4", Recipe::nvfp4_w4a16}, {"fp8", Recipe::fp8_block}, {"", Recipe::bf16}};
  for (const auto& [quantization, recipe] : table) {
    const LaunchRequest r = launch(sglang_auto("Any", quantization, 90));
    EXPECT_EQ(recipe_of(r, format_of(recipe)), recipe) << quantization;
  }
  EXPECT_EQ(recipe_of(launch(sglang_auto("GptOssForCausalLM", "mxfp4", 90)), F::mxfp4), Recipe::mxfp4_w4a16);
}

}  // namespace
}  // namespace sluice::app
