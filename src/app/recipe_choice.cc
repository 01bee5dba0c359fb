#include "app/recipe_choice.h"

#include <algorithm>

#include "app/backend_names.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr std::array kAllRecipes = {Recipe::f32,
                                    Recipe::bf16,
                                    Recipe::fp8_tensor,
                                    Recipe::fp8_block,
                                    Recipe::nvfp4_w4a16,
                                    Recipe::nvfp4_w4a4_cutedsl,
                                    Recipe::nvfp4_w4a4_cutlass,
                                    Recipe::mxfp4_w4a16,
                                    Recipe::mxfp4_w4a8};

std::string name_of(Recipe recipe) { return std::string(recipe_info(recipe).name); }

template <class List, class Name>
std::string joined(const List& list, Name name) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "" : ", ") + std::string(name(entry));
  return text;
}

bool fits(Recipe recipe, WeightFormat format) { return recipe == Recipe::f32 || format_of(recipe) == format; }

// The format of the model: that of its quantised layers when some are left in bf16.
WeightFormat main_format(std::span<const Recipe> stored) {
  const auto quantised = [](Recipe r) { return format_of(r) != WeightFormat::bf16; };
  const auto it = std::find_if(stored.begin(), stored.end(), quantised);
  return it == stored.end() ? WeightFormat::bf16 : format_of(*it);
}

Recipe named_recipe(const std::string& name) {
  const std::optional<Recipe> recipe = recipe_from_name(name);
  if (!recipe) fail(ErrorCode::usage, "--recipe " + name, "auto, " + joined(kAllRecipes, name_of));
  return *recipe;
}

void refuse_recipe(Recipe recipe, WeightFormat format) {
  std::vector<Recipe> fitting;
  std::copy_if(kAllRecipes.begin(), kAllRecipes.end(), std::back_inserter(fitting),
               [&](Recipe r) { return fits(r, format); });
  fail(ErrorCode::unsupported,
       "--recipe " + name_of(recipe) + " with experts stored as " + std::string(format_name(format)),
       "auto, " + joined(fitting, name_of));
}

// Layers that a checkpoint leaves in bf16 stay so; f32 takes all.
Recipe for_layer(Recipe wanted, Recipe stored) {
  return wanted == Recipe::f32 || format_of(stored) != WeightFormat::bf16 || format_of(wanted) == WeightFormat::bf16
             ? wanted
             : stored;
}

std::string_view usual_quantization(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return "";
    case WeightFormat::nvfp4:
      return "modelopt_fp4";
    case WeightFormat::mxfp4:
      return "mxfp4";
    default:
      return "fp8";
  }
}

void note_auto(const RecipeRequest& request, std::span<const Recipe> stored, std::string_view architecture,
               RecipeChoice& choice) {
  if (request.quantization.empty()) return;
  const WeightFormat format = main_format(stored);
  const std::string_view quantization = usual_quantization(format);
  choice.notes.push_back("--quantization " + request.quantization + ": experts are stored as " +
                         std::string(format_name(format)) + "; for them SGLang's auto is " +
                         std::string(sglang_auto(architecture, quantization, 90)) + " below SM100 and " +
                         std::string(sglang_auto(architecture, quantization, 100)) + " on SM100");
}

void apply_backend(const LaunchRequest& launch, std::span<const Recipe> stored, RecipeChoice& choice) {
  const WeightFormat main = main_format(stored);
  const Recipe recipe = recipe_of(launch, main);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const bool left_in_bf16 = format_of(stored[i]) == WeightFormat::bf16 && main != WeightFormat::bf16;
    if (!left_in_bf16) choice.recipes[i] = recipe_of(launch, format_of(stored[i]));
  }
  choice.foreign_backend = launch.backend;
  choice.notes.push_back("--moe-runner-backend " + choice.foreign_backend + " stands for recipe " + name_of(recipe) +
                         " here, on the best runner of this machine");
}

void apply_recipe(const std::string& name, std::span<const Recipe> stored, RecipeChoice& choice) {
  const Recipe wanted = named_recipe(name);
  const WeightFormat main = main_format(stored);
  if (!fits(wanted, main)) refuse_recipe(wanted, main);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Recipe recipe = for_layer(wanted, stored[i]);
    if (!fits(recipe, format_of(stored[i]))) refuse_recipe(recipe, format_of(stored[i]));
    const bool differs = !choice.foreign_backend.empty() && choice.recipes[i] != recipe;
    if (differs) {
      fail(ErrorCode::unsupported, "--recipe " + name + " with --moe-runner-backend " + choice.foreign_backend,
           "--recipe " + name_of(choice.recipes[i]), "or a runner of Sluice");
    }
    choice.recipes[i] = recipe;
  }
}

}  // namespace

RecipeChoice choose_recipes(const RecipeRequest& request, std::span<const Recipe> stored,
                            std::span<const std::string> runners, std::string_view architecture) {
  RecipeChoice choice;
  choice.recipes.assign(stored.begin(), stored.end());
  LaunchRequest launch;
  launch.quantization = request.quantization;
  launch.mxfp4_precision = request.mxfp4_precision;
  launch.tp = request.tp;
  launch.ep = request.ep;
  launch.a2a = request.a2a;
  launch.deepep_mode = request.deepep_mode;
  launch.architecture = architecture;
  const std::string& backend = request.moe_runner_backend;
  const bool ours = std::find(runners.begin(), runners.end(), backend) != runners.end();
  const bool foreign = backend != "auto" && !ours;
  if (foreign && find_backend(backend) == nullptr) {
    fail(ErrorCode::usage, "there is no MoE runner \"" + backend + "\"",
         "auto, " + joined(runners, [](const std::string& n) { return n; }) + "; or of SGLang's names " +
             joined(backend_names(), [](const BackendName& b) { return b.name; }));
  }
  if (foreign) launch.backend = backend;
  if (ours) choice.runner = backend;
  if (!stored.empty()) check_launch(launch, main_format(stored));
  note_auto(request, stored, architecture, choice);
  if (foreign && !stored.empty()) apply_backend(launch, stored, choice);
  if (request.recipe != "auto") apply_recipe(request.recipe, stored, choice);
  choice.disable_shared_experts_fusion =
      request.disable_shared_experts_fusion || disables_shared_experts_fusion(launch);
  return choice;
}

}  // namespace sluice::app
