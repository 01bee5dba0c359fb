// Block scales in tiles of 128 rows x 4 columns, as the FP4 tensor cores of Blackwell read them: 512 bytes a tile, in
// which 16 neighbouring bytes hold the 4 columns of rows i, i + 32, i + 64 and i + 96.
//
// Called by layout.cc at load time. Pure functions, no state. One byte a scale (e4m3, e8m0).
#pragma once

#include <array>
#include <cstdint>

#include "moe/layout/byte_matrix.h"

namespace sluice::layout {

inline constexpr std::int64_t kTileRows = 128;
inline constexpr std::int64_t kTileCols = 4;
inline constexpr std::int64_t kTileBytes = kTileRows * kTileCols;

// Tiles that cover a [rows, cols] matrix of scales.
struct ScaleTiles {
  std::int64_t rows = 0;  // tiles
  std::int64_t cols = 0;  // tiles
  std::int64_t bytes() const { return rows * cols * kTileBytes; }
};
ScaleTiles scale_tiles(std::int64_t rows, std::int64_t cols);

// [rows, cols] > its tiles, row of tiles by row of tiles; what pads the last tiles is 0. The result has one row a tile
// row: [tiles.rows, tiles.cols * 512].
ByteMatrix swizzle_scales(const ByteMatrix& scales);
// The inverse. Throws Error(bad_input) when the bytes are not those of so many tiles.
ByteMatrix unswizzle_scales(const ByteMatrix& tiles, std::int64_t rows, std::int64_t cols);

// The view that CuTe DSL takes of the swizzled scales of `groups` experts, [32, 4, m_tiles, 4, k_tiles, groups]: the
// scale of (row m, scale column c) of group g is at (m % 32, m % 128 / 32, m / 128, c % 4, c / 4, g). It is strided on
// purpose; a contiguous copy would be another layout.
struct MmaView {
  std::array<std::int64_t, 6> shape{};
  std::array<std::int64_t, 6> strides{};  // in scales
};
// For a weight of `rows` x `cols` values in blocks of `block` columns. Throws Error(bad_input) unless `scales`, the
// number of scales stored, is exactly what the view covers.
MmaView mma_view(std::int64_t rows, std::int64_t cols, std::int64_t block, std::int64_t groups, std::int64_t scales);

}  // namespace sluice::layout
