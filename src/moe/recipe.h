// What a layer computes in which number format, as a contract (architecture section 5). How it is done is a runner's
// affair; moe/reference_* is the executable form of this page.
//
// Constant data and pure functions: thread-safe. Read by every runner, by selection and by the checkpoint schemes.
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

// The accumulation of both GEMMs, for every output n of every row; all arithmetic fp32, no fused multiply-add of a
// scale:
//   acc = 0; per segment of S inputs, ascending: chain = 0, then chain += x * w in ascending order, then acc += chain
//   (fp8-block: acc += chain * (x_scale[group] * w_scale[n, group]); there S is the 128 columns of a scale group)
//   acc = scales applied to acc, as below;  acc += bias
// The operands x and w of a recipe are exact in bf16 (f32 apart), so that one bf16 dot kernel serves all; products of
// them are exact in fp32 unless they fall below 2^-126, where a kernel may flush them to zero.
//
//   recipe        x                        w                       scales on acc
//   f32           fp32                     code * scales in fp32   none
//   bf16          bf16                     bf16                    none
//   fp8-tensor    e4m3 code                e4m3 code               acc = (acc * x_scale) * w_scale[n]
//   fp8-block     e4m3 code                e4m3 code               on each segment, see above
//   nvfp4-w4a16   bf16                     e2m1 code * e4m3 scale  acc *= w_tensor_scale
//   mxfp4-w4a16   bf16                     e2m1 code * e8m0 scale  none
//   nvfp4-w4a4/*  e2m1 code * e4m3 scale   e2m1 code * e4m3 scale  acc *= alpha, alpha = x_tensor_scale *
//   w_tensor_scale mxfp4-w4a8    e4m3 code * e8m0 scale   e2m1 code * e8m0 scale  none
// Gate and up have tensor scales of their own, so each GEMM uses its own; Problem::upstream_gate_alpha gives up the
// gate's, as FlashInfer's CuteDSL layer has it with NVFP4 and with bf16 inputs (moe-runner-spec 5.3, 5.5). w_scale[n]
// is that of the tensor or of row n (the product of both in fp32 if a file has both).
//
// How x comes about, for GEMM1 from the hidden row and for GEMM2 from the activated row. A hidden row is bf16; with
// weight_on_input it is first multiplied by the routing weight in fp32 and rounded to bf16. Quantisers: numerics/.
//   bf16       one rounding; weights that are f16 or f32 in the file are rounded to bf16 too
//   fp8-tensor static: code = e4m3(value / x_scale), x_scale one number a layer and GEMM, the largest of all experts
//              (moe-runner-spec 4.5). Without static scales in the file, per token: x_scale = amax / 448 (fp8_scale)
//   fp8-block  1 x 128 groups: x_scale = max(amax, 1e-10) / 448 (fused-moe-numerics 2.3)
//   nvfp4-w4a4 x_tensor_scale is one number a layer and GEMM, the largest of all experts (moe-runner-spec 4.6, 5.3);
//              block scales and codes under g = fp32(1 / x_tensor_scale) as in numerics/block_nvfp4.h, exact division
//   mxfp4-w4a8 MXFP8 with scales rounded up (numerics/block_mx.h). The e4m3-per-token variant is not built
//
// Other rounding points. Gate and up with bias and the activation are fp32, and the activated row goes straight into
// the format above, except in nvfp4-w4a4/cutlass (fused-moe-numerics 2.7): there GEMM1 is rounded to bf16 after alpha
// and before its bias, and the activated row is rounded to bf16 before it is quantised. The slot row (with its bias)
// is rounded once to slot_dtype. The sum over slots is fp32 from 0 in slot order, sum += weight * row, and is rounded
// once to the output type.
//
// The W4A4 recipes reproduce the published quantisation points; they have not been compared with the bits of a card.
const RecipeInfo& recipe_info(Recipe recipe);
std::optional<Recipe> recipe_from_name(std::string_view name);

// Whether GEMM inputs are quantised with static scales of the checkpoint (fp8-tensor only where the file has them).
bool uses_static_input_scales(Recipe recipe);
// Whether GEMM1 reads NVFP4 rows, which are made with a scale that is known before any row is.
bool quantizes_to_nvfp4(Recipe recipe);

}  // namespace sluice
