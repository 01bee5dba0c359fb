#include "moe/layout/scale_swizzle.h"

#include <string>

#include "core/error.h"

namespace sluice::layout {
namespace {

constexpr std::int64_t kLanes = 32;  // rows that are 16 bytes apart in a tile
constexpr std::int64_t kSlices = kTileRows / kLanes;

std::int64_t whole(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }

// Calls visit(matrix row, matrix column, place in the tiles) in the order of the places.
template <class Visit>
void for_each_place(const ScaleTiles& tiles, Visit visit) {
  std::int64_t place = 0;
  for (std::int64_t tile_row = 0; tile_row < tiles.rows; ++tile_row) {
    for (std::int64_t tile_col = 0; tile_col < tiles.cols; ++tile_col) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        for (std::int64_t slice = 0; slice < kSlices; ++slice) {
          for (std::int64_t c = 0; c < kTileCols; ++c, ++place) {
            visit(tile_row * kTileRows + slice * kLanes + lane, tile_col * kTileCols + c, place);
          }
        }
      }
    }
  }
}

}  // namespace

ScaleTiles scale_tiles(std::int64_t rows, std::int64_t cols) {
  return {whole(rows, kTileRows), whole(cols, kTileCols)};
}

ByteMatrix swizzle_scales(const ByteMatrix& scales) {
  const ScaleTiles tiles = scale_tiles(scales.rows, scales.row_bytes);
  ByteMatrix out = zero_bytes(tiles.rows, tiles.cols * kTileBytes);
  for_each_place(tiles, [&](std::int64_t row, std::int64_t col, std::int64_t place) {
    if (row < scales.rows && col < scales.row_bytes) out.bytes[place] = scales.row(row)[col];
  });
  return out;
}

ByteMatrix unswizzle_scales(const ByteMatrix& swizzled, std::int64_t rows, std::int64_t cols) {
  const ScaleTiles tiles = scale_tiles(rows, cols);
  if (static_cast<std::int64_t>(swizzled.bytes.size()) != tiles.bytes()) {
    fail(ErrorCode::bad_input, std::to_string(swizzled.bytes.size()) + " bytes of swizzled scales",
         std::to_string(tiles.bytes()) + " for " + std::to_string(rows) + " x " + std::to_string(cols));
  }
  ByteMatrix out = zero_bytes(rows, cols);
  for_each_place(tiles, [&](std::int64_t row, std::int64_t col, std::int64_t place) {
    if (row < rows && col < cols) out.row(row)[col] = swizzled.bytes[place];
  });
  return out;
}

MmaView mma_view(std::int64_t rows, std::int64_t cols, std::int64_t block, std::int64_t groups, std::int64_t scales) {
  const ScaleTiles tiles = scale_tiles(rows, whole(cols, block));
  if (scales != tiles.bytes() * groups) {
    fail(ErrorCode::bad_input, std::to_string(scales) + " scales for the MMA view",
         std::to_string(tiles.bytes() * groups) + " for " + std::to_string(groups) + " groups of " +
             std::to_string(rows) + " x " + std::to_string(cols));
  }
  MmaView view;
  view.shape = {kLanes, kSlices, tiles.rows, kTileCols, tiles.cols, groups};
  view.strides = {kSlices * kTileCols, kTileCols, tiles.cols * kTileBytes, 1, kTileBytes, tiles.bytes()};
  return view;
}

}  // namespace sluice::layout
