#include "app/backend_names.h"

#include "core/error.h"
#include "core/words.h"

namespace sluice::app {
namespace {

constexpr std::optional<Recipe> kNo;
constexpr Recipe kBf16 = Recipe::bf16, kTensor = Recipe::fp8_tensor, kBlock = Recipe::fp8_block;
constexpr Recipe kDsl = Recipe::nvfp4_w4a4_cutedsl, kCut = Recipe::nvfp4_w4a4_cutlass, kNv16 = Recipe::nvfp4_w4a16;
constexpr Recipe kMx16 = Recipe::mxfp4_w4a16, kMx8 = Recipe::mxfp4_w4a8;

// Columns: bf16, FP8 per tensor, FP8 block, NVFP4, MXFP4. Sources: moe-runner-spec 1.7 and 4 for what a backend runs,
// 7.2 for its rules. The trtllm kernels apply the activation to the fp32 accumulator, like CuTe DSL; sgl-kernel's FP4
// layer (`cutlass`) and FlashInfer CUTLASS round GEMM1 to bf16 first.
constexpr std::string_view kTrtllmQuants =
    "modelopt_fp4 nvfp4_online fp8 mxfp8 modelopt_fp8 modelopt_mixed compressed-tensors None";
constexpr std::array kBackends = {
    BackendName{"triton", {kBf16, kTensor, kBlock, kNo, kNo}, "", "", false, false, ""},
    BackendName{"triton_kernel", {kBf16, kNo, kNo, kNo, kMx16}, "", "", false, false, ""},
    BackendName{"deep_gemm", {kBf16, kNo, kBlock, kNo, kNo}, "", "", false, false, ""},
    BackendName{"flashinfer_trtllm", {kBf16, kTensor, kBlock, kDsl, kNo}, kTrtllmQuants, "", false, true, ""},
    BackendName{"flashinfer_trtllm_routed",
                {kBf16, kNo, kBlock, kDsl, kNo},
                "fp8 mxfp8 modelopt_fp4 modelopt_mixed nvfp4_online None",
                "",
                false,
                true,
                ""},
    BackendName{"experimental_sgl_trtllm", {kBf16, kTensor, kBlock, kDsl, kNo}, kTrtllmQuants, "", false, true, ""},
    BackendName{"flashinfer_cutlass",
                {kBf16, kTensor, kNo, kCut, kNo},
                "modelopt_fp4 modelopt_fp8 modelopt_mixed None",
                "",
                true,
                false,
                ""},
    BackendName{"flashinfer_mxfp4", {kNo, kNo, kNo, kNo, kMx8}, "mxfp4 None", "", false, false, ""},
    BackendName{"flashinfer_cutedsl",
                {kNo, kNo, kNo, kDsl, kNo},
                "modelopt_fp4 modelopt_mixed nvfp4_online None",
                "none deepep flashinfer alltoall",
                true,
                true,
                ""},
    BackendName{"cutlass", {kNo, kNo, kBlock, kCut, kNo}, "", "", false, false, ""},
    BackendName{"marlin", {kNo, kNo, kNo, kNv16, kMx16}, "", "", false, false, ""},
    BackendName{"experimental_sgl_marlin", {kNo, kNo, kNo, kNv16, kMx16}, "", "", false, false, ""},
    BackendName{"humming", {kNo, kNo, kNo, kNo, kMx8}, "", "", false, false, ""},
    BackendName{"aiter", {kBf16, kTensor, kBlock, kNo, kNo}, "", "", false, false, ""},
    BackendName{"intel_xpu", {kBf16, kNo, kNo, kNo, kNo}, "", "", false, false, ""},
    BackendName{"hpc_ops", {}, "", "", false, false, "its number formats are not known here"},
    BackendName{"megamoe", {}, "", "", false, false, "it is one kernel over all ranks, for GPUs"},
};

constexpr std::string_view kNoInt = "there is no recipe for integer weights";
constexpr std::string_view kNoOnline = "nothing is quantised while loading; `sluice quantize` writes a checkpoint";
constexpr std::array kQuantizations = {
    QuantizationName{"fp8", {false, true, true, false, false}, ""},
    QuantizationName{"mxfp8", {}, "there is no recipe for MXFP8 weights"},
    QuantizationName{"modelopt", {false, true, false, true, false}, ""},
    QuantizationName{"modelopt_fp8", {false, true, false, false, false}, ""},
    QuantizationName{"modelopt_fp4", {false, false, false, true, false}, ""},
    QuantizationName{"modelopt_mixed", {false, true, false, true, false}, ""},
    QuantizationName{"nvfp4_online", {}, kNoOnline},
    QuantizationName{"petit_nvfp4", {false, false, false, true, false}, ""},
    QuantizationName{"mxfp4", {false, false, false, false, true}, ""},
    QuantizationName{"compressed-tensors", {false, true, true, true, true}, ""},
    QuantizationName{"w8a8_fp8", {false, true, false, false, false}, ""},
    QuantizationName{"w8a8_int8", {}, kNoInt},
    QuantizationName{"w4afp8", {}, kNoInt},
    QuantizationName{"moe_wna16", {}, kNoInt},
    QuantizationName{"gptq", {}, kNoInt},
    QuantizationName{"gptq_marlin", {}, kNoInt},
    QuantizationName{"awq", {}, kNoInt},
    QuantizationName{"awq_marlin", {}, kNoInt},
    QuantizationName{"quark", {}, "Quark checkpoints are not read"},
    QuantizationName{"humming", {}, kNoOnline},
};

constexpr std::array<std::string_view, kWeightFormats> kFormatNames = {"bf16", "fp8 per tensor or channel", "fp8 block",
                                                                       "nvfp4", "mxfp4"};

template <class Table, class Keep>
std::string names_where(const Table& table, Keep keep) {
  std::string list;
  for (const auto& entry : table) {
    if (keep(entry)) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list;
}

std::string_view given(const LaunchRequest& r) { return r.quantization.empty() ? "None" : r.quantization; }

bool allows(const BackendName& b, const LaunchRequest& r, WeightFormat format) {
  return b.recipes[static_cast<std::size_t>(format)] &&
         (b.quantizations.empty() || has_word(b.quantizations, given(r)));
}

std::string fitting_backends(const LaunchRequest& r, WeightFormat format) {
  const std::string foreign = names_where(kBackends, [&](const BackendName& b) { return allows(b, r, format); });
  return "auto" + (foreign.empty() ? "" : ", " + foreign);
}

std::string backend_flag(const LaunchRequest& r) { return "--moe-runner-backend " + std::string(r.backend); }

void check_quantization(const LaunchRequest& r, WeightFormat format) {
  if (r.quantization.empty() || r.quantization == "None") return;
  const std::string flag = "--quantization " + std::string(r.quantization);
  const QuantizationName* q = find_quantization(r.quantization);
  const auto index = static_cast<std::size_t>(format);
  std::string fitting = names_where(kQuantizations, [&](const QuantizationName& n) { return n.formats[index]; });
  fitting = fitting.empty() ? "no --quantization" : "no --quantization, or " + fitting;
  if (q == nullptr) {
    fail(ErrorCode::usage, flag, names_where(kQuantizations, [](const QuantizationName&) { return true; }));
  }
  if (!q->refusal.empty()) fail(ErrorCode::unsupported, flag + ": " + std::string(q->refusal), fitting);
  if (q->formats[index]) return;
  const bool plain = format == WeightFormat::bf16;
  fail(ErrorCode::unsupported, flag + " with experts stored as " + std::string(format_name(format)), fitting,
       plain ? std::string(kNoOnline) : "the checkpoint decides its own format");
}

void check_parallel(const BackendName& b, const LaunchRequest& r) {
  const std::string pair = backend_flag(r);
  if (b.ep_one_or_tp && r.ep != 1 && r.ep != r.tp) {
    fail(ErrorCode::unsupported, pair + " with --ep " + std::to_string(r.ep),
         r.tp == 1 ? "--ep 1" : "--ep 1 or --ep " + std::to_string(r.tp));
  }
  const bool fp8 = r.quantization == "fp8" || r.quantization == "mxfp8";
  if (b.name == "cutlass" && fp8 && r.ep != 1) {
    fail(ErrorCode::unsupported,
         pair + " and --quantization " + std::string(r.quantization) + " with --ep " + std::to_string(r.ep), "--ep 1");
  }
  if (!b.a2a.empty() && !has_word(b.a2a, r.a2a)) {
    fail(ErrorCode::unsupported, pair + " with --moe-a2a-backend " + std::string(r.a2a), commas(b.a2a));
  }
  if (b.name == "flashinfer_cutedsl" && r.a2a == "deepep" && r.deepep_mode == "normal") {
    fail(ErrorCode::unsupported, pair + " with --deepep-mode normal", "--deepep-mode auto or low_latency");
  }
}

constexpr std::string_view kDeepEpV2Models = "DeepseekV3ForCausalLM DeepseekV4ForCausalLM Qwen3MoeForCausalLM";

// What SGLang's transports ask of the model (moe-runner-spec 7.3); parallel_choice.h has what they ask of the ranks.
void check_transport(const LaunchRequest& r, WeightFormat format) {
  const std::string flag = "--moe-a2a-backend " + std::string(r.a2a);
  const std::string works = "or --moe-a2a-backend alltoall, which has no such rule";
  if (r.a2a == "megamoe" && format != WeightFormat::nvfp4 && format != WeightFormat::mxfp4) {
    fail(ErrorCode::unsupported, flag + " with experts stored as " + std::string(format_name(format)), "nvfp4 or mxfp4",
         works);
  }
  if (r.a2a == "deepep_v2" && !has_word(kDeepEpV2Models, r.architecture)) {
    fail(ErrorCode::unsupported, flag + " with " + std::string(r.architecture), commas(kDeepEpV2Models), works);
  }
}

}  // namespace

WeightFormat format_of(Recipe recipe) {
  switch (recipe) {
    case Recipe::f32:
    case Recipe::bf16:
      return WeightFormat::bf16;
    case Recipe::fp8_tensor:
      return WeightFormat::fp8_tensor;
    case Recipe::fp8_block:
      return WeightFormat::fp8_block;
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return WeightFormat::mxfp4;
    default:
      return WeightFormat::nvfp4;
  }
}

std::string_view format_name(WeightFormat format) { return kFormatNames.at(static_cast<std::size_t>(format)); }

std::span<const QuantizationName> quantization_names() { return kQuantizations; }
std::span<const BackendName> backend_names() { return kBackends; }

const QuantizationName* find_quantization(std::string_view name) {
  for (const QuantizationName& q : kQuantizations) {
    if (q.name == name) return &q;
  }
  return nullptr;
}

const BackendName* find_backend(std::string_view name) {
  for (const BackendName& b : kBackends) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

void check_launch(const LaunchRequest& r, WeightFormat format) {
  check_quantization(r, format);
  check_transport(r, format);
  if (!has_word("default bf16 fp8", r.mxfp4_precision)) {
    fail(ErrorCode::usage, "--flashinfer-mxfp4-moe-precision " + std::string(r.mxfp4_precision),
         "default, bf16 or fp8");
  }
  if (r.backend == "auto") return;
  const BackendName* b = find_backend(r.backend);
  if (b == nullptr) {
    fail(ErrorCode::usage, backend_flag(r), "auto, " + names_where(kBackends, [](const BackendName&) { return true; }));
  }
  if (!b->refusal.empty()) {
    fail(ErrorCode::unsupported, backend_flag(r) + ": " + std::string(b->refusal), fitting_backends(r, format));
  }
  if (!b->quantizations.empty() && !has_word(b->quantizations, given(r))) {
    fail(ErrorCode::unsupported, backend_flag(r) + " with --quantization " + std::string(given(r)),
         "--quantization " + commas(b->quantizations), "or --moe-runner-backend " + fitting_backends(r, format));
  }
  check_parallel(*b, r);
  recipe_of(r, format);
}

Recipe recipe_of(const LaunchRequest& r, WeightFormat format) {
  const BackendName* b = find_backend(r.backend);
  if (b == nullptr) fail(ErrorCode::usage, backend_flag(r) + " stands for no recipe", "a name of SGLang's");
  const std::optional<Recipe>& recipe = b->recipes[static_cast<std::size_t>(format)];
  if (!recipe) {
    fail(ErrorCode::unsupported, backend_flag(r) + " with experts stored as " + std::string(format_name(format)),
         "--moe-runner-backend " + fitting_backends(r, format),
         format == WeightFormat::bf16 ? "or a checkpoint that `sluice quantize` made" : "");
  }
  if (b->name == "flashinfer_mxfp4" && r.mxfp4_precision == "bf16") return Recipe::mxfp4_w4a16;
  return *recipe;
}

bool disables_shared_experts_fusion(const LaunchRequest& r) {
  const BackendName* b = find_backend(r.backend);
  return (b != nullptr && b->no_fused_shared) || r.a2a == "flashinfer" || r.a2a == "deepep_v2";
}

}  // namespace sluice::app
