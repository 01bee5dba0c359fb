// Expert weights of one layer in the physical layouts of other kernels: what SGLang and FlashInfer keep in device
// memory, byte for byte. Called by layout_runner.cc and tests, and by whoever hands weights to such a kernel.
//
// Pure functions; results own their memory. Gated experts: the two halves of GEMM1 are stacked or interleaved as [up,
// gate] in every layout here (the consumers take the second half for the gate).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/recipe.h"
#include "moe/runner.h"
#include "moe/weights.h"

namespace sluice::layout {

enum class LayoutKind : std::uint8_t {
  cutedsl,     // NVFP4: 64-row interleave, 128x4 swizzled scales seen through the 6-D MMA view, alphas
  cutlass,     // bf16, FP8 per tensor or NVFP4: up above gate, NVFP4 scales swizzled, as int32
  sm90_mxfp4,  // MXFP4: up above gate, each half and the columns padded to 128, codes interleaved, scales folded
  rows8,       // any format with scales of single rows: groups of 8 rows
  rows1,       // the same, single rows alternate
};

// One tensor of a layout. Strides in elements; for packed 4-bit codes the element is a byte.
struct Tensor {
  DType element = DType::u8;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::vector<std::uint8_t> bytes;
};

// Scales of the FP4 GEMMs, resolved as moe-runner-spec 5.3: activations are quantised with one scale for all experts.
struct Alphas {
  float input_quant = 1.0f;           // encode scale of the input of GEMM1: 1 / the largest decode scale
  float intermediate_quant = 1.0f;    // the same of the intermediate
  std::vector<float> gate;            // [E] weight scale / input_quant; CuTe DSL takes this one for both halves
  std::vector<float> up;              // [E]
  std::vector<float> down;            // [E] weight scale / intermediate_quant
  std::vector<std::string> warnings;  // no activation scales in the file: 1 was taken
};

struct PreparedLayout {
  LayoutKind kind = LayoutKind::cutlass;
  bool gated = true;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;               // H, as in the file
  std::int64_t intermediate = 0;         // I, as in the file
  std::int64_t padded_hidden = 0;        // columns of w13, rows of w2
  std::int64_t padded_intermediate = 0;  // rows of one half of w13, columns of w2
  DType code = DType::bf16;              // of the weights
  DType scale_type = DType::f32;
  std::int64_t scale_block = 0;  // columns of a block scale; 0 = none
  Tensor w13, w2;
  Tensor w13_scale, w2_scale;      // empty without block scales
  Tensor w13_bias, w2_bias;        // [E, rows]; empty without
  std::vector<float> w13_scale_2;  // [E, 2] tensor scales of up and gate, in the order of the halves; [E] if not gated
  std::vector<float> w2_scale_2;   // [E]
  Alphas alphas;                   // FP4 layouts
  InputScales input_scales;        // as in the file

  // Rows of w13, of both halves when gated.
  std::int64_t w13_rows() const { return (gated ? 2 : 1) * padded_intermediate; }
};

std::string_view layout_name(LayoutKind kind);
std::span<const LayoutKind> layout_kinds();

// Whether weights of a recipe and size fit a layout, with the reason. Reads no weights.
Verdict fits(LayoutKind kind, const LayerSpec& layer, Recipe recipe);

// Throws Error(unsupported) naming format or size where the layout has no place for the weights: another format, sizes
// off the layout's alignment (only sm90_mxfp4 and cutlass pad), one FP8 scale for two different ones.
PreparedLayout prepare_layout(LayoutKind kind, const ExpertWeights& weights);

// The alphas of moe/input_scales.h, with the encode scales that these kernels take.
Alphas resolve_alphas(const ExpertWeights& weights);

}  // namespace sluice::layout
