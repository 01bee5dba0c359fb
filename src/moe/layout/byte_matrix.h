// Dense matrices of bytes and what the physical weight layouts do to their rows: stack, pad, interleave.
//
// Called by layout.cc, once per expert at load time. Pure functions: thread-safe; every result owns its memory. A row
// here is a row of codes, of block scales or of biases alike, so that one permutation serves all three.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/weights.h"

namespace sluice::layout {

struct ByteMatrix {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::vector<std::uint8_t> bytes;  // [rows, row_bytes]

  const std::uint8_t* row(std::int64_t r) const { return bytes.data() + r * row_bytes; }
  std::uint8_t* row(std::int64_t r) { return bytes.data() + r * row_bytes; }
};

ByteMatrix zero_bytes(std::int64_t rows, std::int64_t row_bytes);

// Codes of a weight, whatever its strides; 4-bit codes stay packed two a byte.
ByteMatrix code_bytes(const QuantTensor& weight);
// Block scales of a weight whose every row has scales of its own (block_rows 1); 0 bytes a row without block scales.
// Throws Error(unsupported) for blocks that span rows: no interleaving of rows could follow.
ByteMatrix scale_bytes(const QuantTensor& weight);
// A bias as one column, [count, bytes of an element].
ByteMatrix bias_bytes(const BiasView& bias);

// Zero rows below and zero bytes to the right. Throws Error(usage) when the target is smaller.
ByteMatrix pad(const ByteMatrix& m, std::int64_t rows, std::int64_t row_bytes);

// First above second. Both are padded on their own before, never as one block: that would move the boundary.
ByteMatrix stack(const ByteMatrix& first, const ByteMatrix& second);

// Rows of the two halves in alternating groups: first 0..g-1, second 0..g-1, first g..2g-1, ... Throws
// Error(bad_input) when the rows are odd in number or a half is not made of whole groups.
ByteMatrix interleave_halves(const ByteMatrix& stacked, std::int64_t group);
// The inverse, with the same errors.
ByteMatrix deinterleave_halves(const ByteMatrix& interleaved, std::int64_t group);

}  // namespace sluice::layout
