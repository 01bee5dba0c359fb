// Which recipe each MoE layer is computed in, and whose runner is asked for: the stored format, overridden by flags.
//
// Called by wiring.cc once the headers are known and before any weight is read. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/recipe.h"

namespace sluice::app {

// Flags that decide. Names as on the command line.
struct RecipeRequest {
  std::string recipe = "auto";              // --recipe: auto, or a recipe's name
  std::string moe_runner_backend = "auto";  // auto, a runner of ours, or one of SGLang's names
  std::string quantization;                 // --quantization, SGLang's names; empty = the stored format
  std::string mxfp4_precision = "default";  // --flashinfer-mxfp4-moe-precision: default, bf16 or fp8
  bool disable_shared_experts_fusion = false;
  // How experts are spread over ranks, for the rules of SGLang's names.
  int tp = 1;
  int ep = 1;                        // as resolved: all ranks with an all-to-all
  std::string a2a = "none";          // --moe-a2a-backend
  std::string deepep_mode = "auto";  // --deepep-mode
};

struct RecipeChoice {
  std::vector<Recipe> recipes;  // of each MoE layer, in the order given
  std::string runner = "auto";  // for select_runner: auto or a runner of ours
  std::string foreign_backend;  // SGLang's name when one was given
  bool disable_shared_experts_fusion = false;
  std::vector<std::string> notes;  // what became of SGLang's names, a line each
};

// `stored` are the recipes that the layers' formats ask for; `runners` the names of ours. Throws Error(usage) for
// unknown names and Error(unsupported) for pairs that do not go together, with the values that would work.
RecipeChoice choose_recipes(const RecipeRequest& request, std::span<const Recipe> stored,
                            std::span<const std::string> runners, std::string_view architecture);

}  // namespace sluice::app
