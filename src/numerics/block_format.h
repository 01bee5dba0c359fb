// The quantised formats of matrices, as one table: element, block, scale. Called by everything that allocates, reads or
// names such a matrix. Constant data and pure functions: thread-safe, no allocation.
//
// In every format  value = code * block_scale * tensor_scale  with scales as decode multipliers; a missing one is 1.
// A block lies in whole rows and columns of the matrix; blocks at the right and lower edge may be smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace sluice {

enum class BlockFormat : std::uint8_t {
  fp8_tensor,  // e4m3, one f32 scale a matrix
  fp8_row,     // e4m3, one f32 scale a row: per output channel of a weight, per token of an activation
  fp8_block,   // e4m3, f32 scale per 128 x 128: weights of DeepSeek-style checkpoints
  fp8_group,   // e4m3, f32 scale per 1 x 128: activations of the same recipe
  nvfp4,       // e2m1, e4m3 scale per 1 x 16, and one f32 scale a matrix
  mxfp4,       // e2m1, e8m0 scale per 1 x 32
  mxfp8,       // e4m3, e8m0 scale per 1 x 32
};

inline constexpr std::int64_t kWholeExtent = 0;  // the block covers all rows, or all columns

struct BlockFormatInfo {
  BlockFormat format;
  std::string_view name;  // as in flags and messages
  DType element;
  float element_max;        // largest finite element
  std::int64_t block_rows;  // or kWholeExtent
  std::int64_t block_cols;  // or kWholeExtent
  DType scale;              // of a block; unused when has_block_scale is false
  bool has_block_scale;
  bool has_tensor_scale;
};

const BlockFormatInfo& block_format_info(BlockFormat format);
std::optional<BlockFormat> block_format_from_name(std::string_view name);

// Bytes and scale counts of a dense [rows, cols] matrix in a format. Packed rows start at whole bytes.
struct BlockLayout {
  std::int64_t code_row_bytes;
  std::int64_t scale_rows;  // 0 when the format has no block scales
  std::int64_t scale_cols;
};
BlockLayout block_layout(const BlockFormatInfo& info, std::int64_t rows, std::int64_t cols);

}  // namespace sluice
