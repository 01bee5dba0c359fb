// Random layers of random_layer.h in the weight format of any recipe, with input scales. For tests of any runner.
//
// The formats are those of weights.h; the codes come from the quantisers in numerics/, which have tests of their own.
// Gate, up and every expert have tensor scales of their own, blocks differ from their neighbours, and the input scales
// differ between experts and between gate and up, so that taking the wrong one shows. Header-only; nothing is shared
// between objects.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "moe/random_layer.h"
#include "moe/recipe.h"
#include "numerics/block_fp8.h"
#include "numerics/block_mx.h"
#include "numerics/block_nvfp4.h"
#include "numerics/e8m0.h"
#include "numerics/quant_matrix.h"

namespace sluice::testing {

// Variants of one weight format that a checkpoint may have.
struct FormatOptions {
  bool per_channel = false;        // fp8-tensor: a scale a row instead of one a matrix
  DType block_scale = DType::f32;  // fp8-block: f32, bf16 or e8m0
  bool static_input = true;        // fp8-tensor: input scales in the file
  float gemm1_amax = 3.0f;         // amax of the hidden rows that input scales stand for
  float gemm2_amax = 200.0f;       // of the intermediate
};

namespace detail {

// Owns quantised matrices; QuantTensors point into them.
struct FormatStorage {
  std::shared_ptr<const void> floats;  // biases
  std::vector<std::unique_ptr<QuantMatrix>> matrices;
  std::vector<std::unique_ptr<std::vector<std::byte>>> scales;
};

inline QuantMatrix quantize_for(Recipe recipe, const FloatView& v, bool per_channel) {
  switch (recipe) {
    case Recipe::fp8_tensor:
      return per_channel ? quantize_fp8_rows(v) : quantize_fp8_tensor(v);
    case Recipe::fp8_block:
      return quantize_fp8_blocks(v);
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return quantize_mxfp4(v);
    default:
      return quantize_nvfp4(v);
  }
}

// f32 block scales in another type: bf16 rounds them, e8m0 takes the power of two above. The codes stay, so that the
// values of the matrix change with them, which is fine for a random one.
inline const void* convert_scales(FormatStorage& storage, const std::vector<float>& scales, DType type) {
  auto& bytes = *storage.scales.emplace_back(std::make_unique<std::vector<std::byte>>());
  bytes.resize(static_cast<std::size_t>(dtype_bytes(type, static_cast<std::int64_t>(scales.size()))));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (type == DType::e8m0) reinterpret_cast<std::uint8_t*>(bytes.data())[i] = to_e8m0_up(scales[i]).bits;
    if (type == DType::bf16) reinterpret_cast<Bf16*>(bytes.data())[i] = to_bf16(scales[i]);
  }
  return bytes.data();
}

// The canonical view of a quantised matrix (weights.h).
inline QuantTensor view_of(FormatStorage& storage, const QuantMatrix& m, DType block_scale_type) {
  const BlockFormatInfo& info = m.info();
  const BlockLayout layout = m.layout();
  const std::int64_t stride = info.element == DType::e2m1 ? layout.code_row_bytes * 2 : m.cols;
  QuantTensor t;
  t.codes = {m.codes.data(), info.element, m.rows, m.cols, stride, 1};
  t.tensor_scale = m.tensor_scale;
  if (!info.has_block_scale) return t;
  const std::int64_t block_cols = info.block_cols == kWholeExtent ? m.cols : info.block_cols;
  const bool bytes = info.scale != DType::f32;
  t.block_scale = {bytes ? static_cast<const void*>(m.byte_scales.data()) : m.float_scales.data(),
                   info.scale,
                   info.block_rows,
                   block_cols,
                   layout.scale_cols,
                   1};
  if (m.format == BlockFormat::fp8_block && block_scale_type != DType::f32) {
    t.block_scale.data = convert_scales(storage, m.float_scales, block_scale_type);
    t.block_scale.dtype = block_scale_type;
  }
  return t;
}

// Neighbouring blocks, rows of blocks and rows get magnitudes of their own, so that every format has different scales
// beside and below each other.
inline float block_magnitude(std::int64_t n, std::int64_t c) {
  constexpr float kFine[4] = {0.25f, 1.0f, 0.5f, 2.0f}, kCoarse[3] = {1.0f, 0.6f, 0.8f};
  return kFine[(c / 32 + n) % 4] * kCoarse[(c / 128 + n / 128) % 3];
}

inline QuantTensor quantize_tensor(FormatStorage& storage, Recipe recipe, const QuantTensor& plain,
                                   const FormatOptions& o) {
  const std::int64_t rows = plain.codes.rows, cols = plain.codes.cols;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::int64_t n = 0; n < rows; ++n) {
    decode_row(plain, n, values.data() + n * cols);
    for (std::int64_t c = 0; c < cols; ++c) values[n * cols + c] *= block_magnitude(n, c);
  }
  storage.matrices.push_back(
      std::make_unique<QuantMatrix>(quantize_for(recipe, {values.data(), rows, cols, cols}, o.per_channel)));
  return view_of(storage, *storage.matrices.back(), o.block_scale);
}

// Scales of E experts whose largest is exactly `largest`, at another expert for each `phase`.
inline std::vector<float> spread_scales(std::int32_t experts, float largest, std::int32_t phase) {
  std::vector<float> scales;
  for (std::int32_t e = 0; e < experts; ++e) {
    scales.push_back(e == phase % experts ? largest : largest * (0.3f + 0.1f * static_cast<float>(e % 5)));
  }
  return scales;
}

}  // namespace detail

inline bool is_quantized(Recipe recipe) { return recipe != Recipe::f32 && recipe != Recipe::bf16; }

// Largest operand per unit of the tensor scale: what an input scale is derived from.
inline float largest_code(Recipe recipe) { return recipe == Recipe::fp8_tensor ? kE4m3Max : kE4m3Max * 6.0f; }

inline InputScales random_input_scales(Recipe recipe, std::int32_t experts, bool gated, const FormatOptions& o = {}) {
  if (!uses_static_input_scales(recipe) || (recipe == Recipe::fp8_tensor && !o.static_input)) return {};
  const float gemm1 = o.gemm1_amax / largest_code(recipe), gemm2 = o.gemm2_amax / largest_code(recipe);
  InputScales scales;
  if (gated) scales.gate = detail::spread_scales(experts, 0.7f * gemm1, 0);
  scales.up = detail::spread_scales(experts, gemm1, 1);
  scales.down = detail::spread_scales(experts, gemm2, 2);
  return scales;
}

// The weights of random_weights in the format of the recipe; plain ones for f32 and bf16. Biases stay as they are.
inline ExpertWeights quantized_weights(const LayerOptions& layer, Recipe recipe, const FormatOptions& o = {}) {
  ExpertWeights plain = random_weights(layer);
  if (!is_quantized(recipe)) return plain;
  auto storage = std::make_shared<detail::FormatStorage>();
  storage->floats = std::move(plain.keep_alive);
  for (auto* list : {&plain.gate, &plain.up, &plain.down}) {
    for (QuantTensor& t : *list) t = detail::quantize_tensor(*storage, recipe, t, o);
  }
  plain.input_scales =
      random_input_scales(recipe, layer.layer.routing.total_experts(), is_gated(layer.layer.activation.kind), o);
  plain.keep_alive = std::move(storage);
  return plain;
}

inline const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> recipes = {Recipe::f32,         Recipe::bf16,
                                              Recipe::fp8_tensor,  Recipe::fp8_block,
                                              Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                              Recipe::mxfp4_w4a16, Recipe::nvfp4_w4a4_cutlass,
                                              Recipe::mxfp4_w4a8};
  return recipes;
}

// Makes row 0 of a matrix NaN, in place: through the codes of e4m3 and float types, through the block scales of e2m1.
inline void poison_first_row(const QuantTensor& w) {
  // All ones are a NaN of every type that has one.
  const bool packed = w.codes.dtype == DType::e2m1;
  const void* data = packed ? w.block_scale.data : w.codes.data;
  const std::int64_t bytes = packed ? w.block_scale.row_stride : dtype_bytes(w.codes.dtype, w.codes.cols);
  std::fill_n(static_cast<std::uint8_t*>(const_cast<void*>(data)), bytes, std::uint8_t{0xFF});
}

// For names of test instances.
inline std::string recipe_test_name(Recipe recipe) {
  std::string name(recipe_info(recipe).name);
  for (char& c : name) c = c == '-' || c == '/' ? '_' : c;
  return name;
}

}  // namespace sluice::testing
