// What a layer computes in which number format, as a contract (architecture section 5). How it is done is a runner's
// affair.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace sluice {

enum class Recipe : std::uint8_t {
  f32,
  bf16,
  fp8_tensor,
  fp8_block,
  nvfp4_w4a16,
  nvfp4_w4a4_cutedsl,
  nvfp4_w4a4_cutlass,
  mxfp4_w4a16,
  mxfp4_w4a8,
};

struct RecipeInfo {
  Recipe recipe;
  std::string_view name;   // as in flags and messages: "bf16", "fp8-block", ...
  DType slot_dtype;        // rounding of a slot row: bf16, or f32 for the f32 recipe
  std::int32_t segment_k;  // S: products in one ascending chain; segments are added in ascending order in fp32
};

// Accumulation, for every output of both GEMMs: acc = 0; per segment of S inputs, ascending: chain = 0, then
// chain += x * w in ascending order, then acc += chain; all in fp32. Last, acc += bias. Rounding points of
//   f32   none; weights of any format are decoded to fp32
//   bf16  weights that are f16 or f32 in the file are rounded to bf16 before the product; the input is bf16 (for
//         weight_on_input: the fp32 product of weight and input, rounded to bf16); gate, up and activation stay fp32,
//         and the activated value is rounded once to bf16; the slot row (with its bias) is rounded once to bf16; the
//         sum over slots is fp32 from 0 in slot order, sum += weight * row, and is rounded once to the output type
const RecipeInfo& recipe_info(Recipe recipe);
std::optional<Recipe> recipe_from_name(std::string_view name);

}  // namespace sluice
