// One weight as its tensors hold it, before it is cut into experts, gate and up.
//
// Made by a dialect from the parts of a module, cut by whoever reads experts or dense layers. Views into mapped files;
// plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/module_parts.h"
#include "moe/ids.h"
#include "moe/parallel.h"
#include "moe/recipe.h"
#include "moe/weights.h"
#include "numerics/block_format.h"

namespace sluice::ckpt {

// What is asked of a module.
struct WeightRequest {
  const ModuleParts* parts = nullptr;
  std::int64_t layer = 0;
  std::int64_t experts = 0;  // in one stacked tensor; 0 = a single matrix
  std::int64_t expert = -1;  // whose matrix it is, for messages; -1 = of no expert
  std::int64_t outputs = 0;  // 2I where gate and up are together
  std::int64_t inputs = 0;
  std::int64_t halves = 1;  // 2 = gate and up together
  bool transposed = false;  // stored [inputs, outputs]
  // Of a rank that holds a part of the experts:
  bool elsewhere = false;           // the expert is another rank's: only headers and its input scale are looked at
  std::span<const LogicalId> held;  // of a stacked tensor, the experts whose values may be read; empty = all

  std::int64_t matrices() const { return experts == 0 ? 1 : experts; }
  bool holds(std::int64_t of_expert) const;
};

// Scales of whole matrices, decode multipliers: one for all, one an expert, or one an expert and half (gate first).
struct Scalars {
  std::vector<float> values;  // empty = none in the file; an input scale that is not positive is one to fill

  bool empty() const { return values.empty(); }
  float at(const WeightRequest& request, std::int64_t expert, std::int64_t half) const;
};

struct StoredWeight {
  std::optional<BlockFormat> format;  // nothing = plain
  QuantTensor whole;                  // of the first expert, all outputs
  std::int64_t code_step = 0;         // elements from one expert to the next
  std::int64_t scale_step = 0;        // block scales from one expert to the next
  Scalars tensor_scale;
  Scalars input_scale;
};

// The outputs of gate or up in a tensor that may hold both, and the inputs that are wanted.
struct OutputSlice {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t rows = 0;
  std::int64_t half = 0;  // 0 = gate or the only one, 1 = up
  Share cols;
};

// Whether the slice begins and ends with whole blocks of scales; only then it is a view.
bool splits_blocks(const StoredWeight& weight, const OutputSlice& slice);
// Without its input scale. Throws when columns cut a group of scales.
QuantTensor cut(const StoredWeight& weight, const WeightRequest& request, std::int64_t expert,
                const OutputSlice& slice);

// "bf16", "nvfp4", ...: the format and, when plain, the type.
std::string format_text(std::optional<BlockFormat> format, DType type);
// What the format asks for without a wish for quantised activations.
Recipe recipe_of(std::optional<BlockFormat> format);

}  // namespace sluice::ckpt
