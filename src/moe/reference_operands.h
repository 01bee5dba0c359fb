// What a GEMM of the reference runner reads: rows in the number format of a recipe, as codes with their scales and as
// the float operands that enter the products.
//
// Called by the stages of the reference runner and by tests. Rows live in a workspace of the caller; functions have no
// state, so that different rows can be worked on by different threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.h"

namespace sluice::reference {

enum class RowFormat : std::uint8_t {
  f32,        // as it is
  bf16,       // rounded once
  fp8_row,    // e4m3 codes, one scale a row: static, or from the row's own amax
  fp8_group,  // e4m3 codes, a scale per 128 columns
  nvfp4,      // e2m1 codes, an e4m3 scale per 16 columns, one static scale
  mxfp8,      // e4m3 codes, an e8m0 scale per 32 columns
};

// Extents of one row of `cols` values; 0 = the format has none.
struct RowExtents {
  std::int64_t code_bytes = 0;    // e4m3, or e2m1 two a byte
  std::int64_t block_scales = 0;  // bytes: e4m3 or e8m0, part of the operands
  std::int64_t sum_scales = 0;    // f32 decode multipliers that are applied to sums instead
};
RowExtents row_extents(RowFormat format, std::int64_t cols);

// `values` holds the operands: the code, times the block scale where there is one, which is exact in bf16.
struct OperandRows {
  RowFormat format = RowFormat::f32;
  std::int64_t cols = 0;
  float* values = nullptr;               // [count, cols]
  std::uint8_t* codes = nullptr;         // [count, code_bytes]
  std::uint8_t* block_scales = nullptr;  // [count, block_scales]
  float* sum_scales = nullptr;           // [count, sum_scales]

  OperandRows from(std::int64_t row) const;  // the rows from `row` on
  float* row(std::int64_t i) const { return values + i * cols; }
  // 1 where the format has none.
  float sum_scale(std::int64_t i, std::int64_t c) const;
};

std::size_t operand_bytes(RowFormat format, std::int64_t count, std::int64_t cols);
OperandRows take_rows(RowFormat format, std::int64_t count, std::int64_t cols, Workspace& workspace);

// Rounds or quantises row i, which holds plain fp32 values, in place. `static_scale` is the decode multiplier of the
// whole row; 0 lets fp8_row take it from the row. nvfp4 needs one.
void encode_row(const OperandRows& rows, std::int64_t i, float static_scale);

// Makes the operands of row i from codes and block scales that are there already.
void decode_operands(const OperandRows& rows, std::int64_t i);

// Row i with all its scales applied, in fp32, out [cols]: what the operands stand for.
void dequantize_operands(const OperandRows& rows, std::int64_t i, float* out);

}  // namespace sluice::reference
