// What would run, and why, before any weight is read: every runner asked for every recipe, for each kind of layer, and
// the memory of one rank. `sluice explain` prints it.
//
// Called by cli/explain.cc and tests. Reads configuration and file headers only. Throws Error for a damaged checkpoint,
// an unknown architecture, sizes that no launch line has, or flags that do not go together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/memory_plan.h"
#include "app/wiring.h"
#include "moe/parallel.h"

namespace sluice::app {

struct ExplainOptions {
  std::string path;
  std::string device = "cpu";  // cpu or cuda
  std::string isa = "auto";
  ParallelSizes sizes;    // as resolve() returns them
  RecipeRequest request;  // flags that decide the recipe and the runner, as those of `sluice run`
  bool row_invariant = true;
  std::int64_t max_tokens = 512;
};

// One runner and one recipe for a kind of layer.
struct Candidacy {
  std::string recipe;
  std::string runner;
  bool ok = false;
  std::string reason;  // why not
};

// Kernel for up to this many tokens, among those that were asked for (powers of two).
struct KernelChoice {
  std::int64_t tokens = 0;
  std::string kernel;
};

// Layers that differ in nothing that matters to a runner.
struct LayerKind {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count = 0;
  LayerSpec spec;                     // of the whole model
  Recipe stored = Recipe::bf16;       // what the stored format asks for
  Recipe recipe = Recipe::bf16;       // what the flags make of it
  std::int64_t experts_per_rank = 0;  // of the rank with the most
  std::int64_t inner_per_rank = 0;    // I of the largest piece of an expert
  std::string split_problem;          // why the split does not work; empty when it does
  std::vector<Candidacy> table;       // recipes in their order, runners in order of preference within
  std::string chosen;                 // "recipe on runner"; empty when nothing fits
  std::vector<KernelChoice> kernels;  // of the chosen runner, where it has several; ascending
};

struct Explanation {
  std::string architecture;
  std::string scheme;
  std::vector<ckpt::FormatUse> formats;
  std::vector<LayerKind> kinds;  // MoE layers only
  std::int64_t dense_layers = 0;
  MemoryPlan memory;                    // of the rank with the most weights
  std::int64_t least_weight_bytes = 0;  // of the rank with the least
  std::vector<std::string> notes;       // what became of the flags
  std::vector<std::string> problems;    // of the checkpoint: `sluice check` says more
  bool runnable() const;
};

Explanation explain(const ExplainOptions& options);

}  // namespace sluice::app
