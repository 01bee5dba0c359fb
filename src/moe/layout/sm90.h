// The layout in which FlashInfer's mixed-input GEMM of Hopper (bf16 x MXFP4) reads weights and scales.
//
// Called by layout.cc at load time. Pure functions, no state. Codes are permuted so that one 32-bit load feeds one
// register fragment; the mapping is that of FlashInfer's weight preparation for kind "fp4" (release 0.6.18), stated
// here as a formula.
#pragma once

#include <cstdint>

#include "moe/layout/byte_matrix.h"

namespace sluice::layout {

inline constexpr std::int64_t kSm90Align = 128;  // rows of a half, and columns
inline constexpr std::int64_t kFoldRows = 64;    // rows of one folded block of scales
inline constexpr std::int64_t kFoldCols = 4;     // scale columns of it: 128 values
inline constexpr std::int64_t kFoldBytes = kFoldRows * kFoldCols;

// Packed e2m1 codes [n, k/2] > the same size, as 32-bit words. Within a slab of 16 rows and 64 columns, the word at row
// r + 8 (q % 2), byte 16 (q / 2) + 4 l, with r < 8 and q, l < 4, holds 8 codes: of rows r and r + 8, columns 16 q + 2 l
// + {0, 1, 8, 9}. Even columns fill its lower half and odd ones its upper half; the 4 codes of a half share 16 bits, so
// that a shift by a multiple of 3 and a mask turn a code into a bf16 (the last code has its own bits, see the .cc).
// Throws Error(bad_input) unless n is a multiple of 16 and k of 64.
ByteMatrix interleave_sm90_codes(const ByteMatrix& codes);
ByteMatrix deinterleave_sm90_codes(const ByteMatrix& interleaved);

// e8m0 scales [rows, k/32] > [rows/64 * k/128, 256] bytes: the block of rows 64a.. and scale columns 4b.. is row
// a * (k/128) + b, and in it row m, column c is at (m % 16) * 16 + (m / 16) * 4 + c. Throws Error(bad_input) unless
// rows is a multiple of 64 and k of 128.
ByteMatrix fold_sm90_scales(const ByteMatrix& scales);
ByteMatrix unfold_sm90_scales(const ByteMatrix& folded, std::int64_t rows, std::int64_t cols);

}  // namespace sluice::layout
