// SGLang's names of MoE runners and quantisations, what each stands for here, and the rules that SGLang checks for
// them.
//
// Called by recipe_choice.cc before any weight is read, and by reports. Constant data and pure functions. A foreign
// runner name selects a recipe (what is computed); which runner of ours computes it is selection's affair.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "moe/recipe.h"

namespace sluice::app {

// How a layer's experts are stored.
enum class WeightFormat : std::uint8_t { bf16, fp8_tensor, fp8_block, nvfp4, mxfp4 };
inline constexpr std::size_t kWeightFormats = 5;

// From the recipe that the stored format asks for. Recipe f32 means unquantised weights here.
WeightFormat format_of(Recipe recipe);
std::string_view format_name(WeightFormat format);

struct QuantizationName {
  std::string_view name;
  std::array<bool, kWeightFormats> formats{};  // of checkpoints that it describes
  std::string_view refusal;                    // why it is not here; empty when it is
};
std::span<const QuantizationName> quantization_names();
const QuantizationName* find_quantization(std::string_view name);

struct BackendName {
  std::string_view name;
  std::array<std::optional<Recipe>, kWeightFormats> recipes{};  // by format; nothing = it does not run it
  // What SGLang lets it be combined with (moe-runner-spec 7.2). Space-separated; "" = no rule.
  // "None" = --quantization not given: then the stored format alone decides, as when SGLang finds it in the checkpoint.
  std::string_view quantizations;
  std::string_view a2a;
  bool ep_one_or_tp = false;     // expert parallelism over all ranks or not at all
  bool no_fused_shared = false;  // sets disable_shared_experts_fusion (7.6)
  std::string_view refusal;      // why it is not here at all
};
std::span<const BackendName> backend_names();
const BackendName* find_backend(std::string_view name);

// What a launch line asks for, as far as the rules look at it.
struct LaunchRequest {
  std::string_view backend = "auto";
  std::string_view quantization;  // empty = not given
  std::string_view a2a = "none";
  std::string_view deepep_mode = "auto";
  std::string_view mxfp4_precision = "default";  // --flashinfer-mxfp4-moe-precision
  std::string_view architecture;                 // of config.json, for transports with a list of their own
  int tp = 1;
  int ep = 1;
};

// Throws Error(usage) for a name that SGLang does not have either, and Error(unsupported) for a combination that it
// refuses or that a checkpoint of this format rules out; both say which values would work.
void check_launch(const LaunchRequest& request, WeightFormat format);

// The recipe of a layer stored in `format`. Layers left in bf16 in a quantised model keep bf16. Throws
// Error(unsupported) with the backends that would run it.
Recipe recipe_of(const LaunchRequest& request, WeightFormat format);

// Whether shared experts stay apart from the routed ones.
bool disables_shared_experts_fusion(const LaunchRequest& request);

// What `auto` means to SGLang on a GPU of compute capability `sm` (90, 100, 120) without all-to-all (moe-runner-spec
// 7.5). Machines below SM100, and CPUs, take the recipes of these choices.
std::string_view sglang_auto(std::string_view architecture, std::string_view quantization, int sm);

}  // namespace sluice::app
