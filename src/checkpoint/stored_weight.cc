#include "checkpoint/stored_weight.h"

#include <algorithm>

#include "moe/weight_slices.h"

namespace sluice::ckpt {
namespace {

const void* at_element(const void* data, DType type, std::int64_t element) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + dtype_bytes(type, element);
}

}  // namespace

bool WeightRequest::holds(std::int64_t of_expert) const {
  if (elsewhere) return false;
  return held.empty() ||
         std::find(held.begin(), held.end(), LogicalId{static_cast<std::int32_t>(of_expert)}) != held.end();
}

float Scalars::at(const WeightRequest& request, std::int64_t expert, std::int64_t half) const {
  const auto count = static_cast<std::int64_t>(values.size());
  std::int64_t i = 0;
  if (count == request.matrices()) {
    i = expert;
  } else if (count > 1) {
    i = expert * request.halves + half;
  }
  return values[static_cast<std::size_t>(i)];
}

bool splits_blocks(const StoredWeight& weight, const OutputSlice& slice) {
  const std::int64_t rows = weight.whole.block_scale.block_rows;
  if (weight.whole.block_scale.data == nullptr || rows == 1) return false;
  return slice.step != 1 || slice.first % rows != 0;
}

QuantTensor cut(const StoredWeight& weight, const WeightRequest& request, std::int64_t expert,
                const OutputSlice& slice) {
  QuantTensor out = weight.whole;
  MatrixView& codes = out.codes;
  codes.data =
      at_element(codes.data, codes.dtype, expert * weight.code_step + slice.first * weight.whole.codes.row_stride);
  codes.rows = slice.rows;
  codes.row_stride *= slice.step;
  BlockScaleView& scale = out.block_scale;
  if (scale.data != nullptr) {
    const std::int64_t first = slice.first / scale.block_rows * scale.row_stride;
    scale.data = at_element(scale.data, scale.dtype, expert * weight.scale_step + first);
    if (scale.block_rows == 1) scale.row_stride *= slice.step;
  }
  if (!weight.tensor_scale.empty()) out.tensor_scale = weight.tensor_scale.at(request, expert, slice.half);
  return slice.cols.count() == codes.cols ? out : columns_of(out, slice.cols);
}

std::string format_text(std::optional<BlockFormat> format, DType type) {
  return std::string(format ? block_format_info(*format).name : dtype_name(type));
}

Recipe recipe_of(std::optional<BlockFormat> format) {
  if (!format) return Recipe::bf16;
  switch (*format) {
    case BlockFormat::fp8_tensor:
    case BlockFormat::fp8_row:
      return Recipe::fp8_tensor;
    case BlockFormat::nvfp4:
      return Recipe::nvfp4_w4a16;
    case BlockFormat::mxfp4:
      return Recipe::mxfp4_w4a16;
    default:
      return Recipe::fp8_block;
  }
}

}  // namespace sluice::ckpt
