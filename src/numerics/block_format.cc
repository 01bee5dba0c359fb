#include "numerics/block_format.h"

#include <array>

#include "numerics/e2m1.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

constexpr std::int64_t kAll = kWholeExtent;

// Indexed by BlockFormat; the order is that of the enum.
constexpr std::array<BlockFormatInfo, 7> kFormats = {{
    {BlockFormat::fp8_tensor, "fp8-tensor", DType::e4m3, kE4m3Max, kAll, kAll, DType::f32, false, true},
    {BlockFormat::fp8_row, "fp8-row", DType::e4m3, kE4m3Max, 1, kAll, DType::f32, true, false},
    {BlockFormat::fp8_block, "fp8-block", DType::e4m3, kE4m3Max, 128, 128, DType::f32, true, false},
    {BlockFormat::fp8_group, "fp8-group", DType::e4m3, kE4m3Max, 1, 128, DType::f32, true, false},
    {BlockFormat::nvfp4, "nvfp4", DType::e2m1, kE2m1Max, 1, 16, DType::e4m3, true, true},
    {BlockFormat::mxfp4, "mxfp4", DType::e2m1, kE2m1Max, 1, 32, DType::e8m0, true, false},
    {BlockFormat::mxfp8, "mxfp8", DType::e4m3, kE4m3Max, 1, 32, DType::e8m0, true, false},
}};

std::int64_t blocks_along(std::int64_t extent, std::int64_t block) {
  if (block == kWholeExtent) return extent > 0 ? 1 : 0;
  return (extent + block - 1) / block;
}

}  // namespace

const BlockFormatInfo& block_format_info(BlockFormat format) { return kFormats[static_cast<std::size_t>(format)]; }

std::optional<BlockFormat> block_format_from_name(std::string_view name) {
  for (const BlockFormatInfo& info : kFormats) {
    if (info.name == name) return info.format;
  }
  return std::nullopt;
}

BlockLayout block_layout(const BlockFormatInfo& info, std::int64_t rows, std::int64_t cols) {
  BlockLayout layout{dtype_bytes(info.element, cols), 0, 0};
  if (info.has_block_scale) {
    layout.scale_rows = blocks_along(rows, info.block_rows);
    layout.scale_cols = blocks_along(cols, info.block_cols);
  }
  return layout;
}

}  // namespace sluice
