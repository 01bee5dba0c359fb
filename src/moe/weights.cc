#include "moe/weights.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

// Calls visit with a null pointer to the C++ type that stores `type`, except for packed e2m1. Files hold these types
// only, so anything else is a loader's mistake.
template <class Visitor>
void visit_type(DType type, Visitor visit) {
  switch (type) {
    case DType::f32:
      return visit(static_cast<const float*>(nullptr));
    case DType::f16:
      return visit(static_cast<const Fp16*>(nullptr));
    case DType::bf16:
      return visit(static_cast<const Bf16*>(nullptr));
    case DType::e4m3:
      return visit(static_cast<const E4m3*>(nullptr));
    case DType::e5m2:
      return visit(static_cast<const E5m2*>(nullptr));
    case DType::e8m0:
      return visit(static_cast<const E8m0*>(nullptr));
    default:
      fail(ErrorCode::unsupported, "weights of type " + std::string(dtype_name(type)) + " cannot be decoded",
           "f32, f16, bf16, e4m3, e5m2, e8m0 or packed e2m1");
  }
}

float as_float(float v) { return v; }
template <class T>
float as_float(T v) {
  return to_float(v);
}

// `count` elements from `first` on, `stride` apart.
void decode_elements(const void* data, DType type, std::int64_t first, std::int64_t stride, std::int64_t count,
                     float* out) {
  visit_type(type, [&]<class T>(const T*) {
    const T* values = static_cast<const T*>(data) + first;
    for (std::int64_t i = 0; i < count; ++i) out[i] = as_float(values[i * stride]);
  });
}

void decode_packed(const MatrixView& codes, std::int64_t n, float* out) {
  if (codes.col_stride != 1 || codes.row_stride % 2 != 0) {
    fail(ErrorCode::bad_input, "a packed 4-bit weight has strides that split a byte",
         "unit column stride and an even row stride");
  }
  const auto* row = static_cast<const std::uint8_t*>(codes.data) + n * codes.row_stride / 2;
  for (std::int64_t c = 0; c < codes.cols; ++c) out[c] = to_float(unpack_e2m1(row[c / 2], c));
}

void decode_codes(const MatrixView& codes, std::int64_t n, float* out) {
  if (codes.dtype == DType::e2m1) return decode_packed(codes, n, out);
  decode_elements(codes.data, codes.dtype, n * codes.row_stride, codes.col_stride, codes.cols, out);
}

void apply_block_scales(const BlockScaleView& scale, std::int64_t n, std::int64_t cols, float* out) {
  for (std::int64_t begin = 0; begin < cols; begin += scale.block_cols) {
    const std::int64_t end = std::min(begin + scale.block_cols, cols);
    const float factor = decode_block_scale(scale, n, begin);
    for (std::int64_t c = begin; c < end; ++c) out[c] *= factor;
  }
}

}  // namespace

float decode_block_scale(const BlockScaleView& scale, std::int64_t n, std::int64_t c) {
  if (scale.data == nullptr) return 1.0f;
  if (scale.block_rows < 1 || scale.block_cols < 1) {
    fail(ErrorCode::bad_input, "a block scale covers no elements", "blocks of at least 1 x 1");
  }
  float factor = 0.0f;
  const std::int64_t index = n / scale.block_rows * scale.row_stride + c / scale.block_cols * scale.col_stride;
  decode_elements(scale.data, scale.dtype, index, 1, 1, &factor);
  return factor;
}

void decode_row_codes(const QuantTensor& weight, std::int64_t n, float* out) { decode_codes(weight.codes, n, out); }

void decode_row_blocks(const QuantTensor& weight, std::int64_t n, float* out) {
  decode_codes(weight.codes, n, out);
  if (weight.block_scale.data != nullptr && weight.codes.cols > 0) {
    decode_block_scale(weight.block_scale, n, 0);  // refuses a block without extent before it is stepped by
    apply_block_scales(weight.block_scale, n, weight.codes.cols, out);
  }
}

void decode_row(const QuantTensor& weight, std::int64_t n, float* out) {
  decode_row_blocks(weight, n, out);
  if (weight.tensor_scale == 1.0f) return;
  for (std::int64_t c = 0; c < weight.codes.cols; ++c) out[c] *= weight.tensor_scale;
}

float decode_bias(const BiasView& bias, std::int64_t n) {
  float value = 0.0f;
  decode_elements(bias.data, bias.dtype, n * bias.stride, 1, 1, &value);
  return value;
}

void release_rows(const QuantTensor& weight, std::int64_t first, std::int64_t last) {
  const MatrixView& c = weight.codes;
  last = std::min(last, c.rows);
  if (weight.release == nullptr || c.col_stride != 1 || first >= last) return;
  const auto* from = static_cast<const std::byte*>(c.data) + dtype_bytes(c.dtype, first * c.row_stride);
  const std::int64_t elements = (last - first - 1) * c.row_stride + c.cols;
  (*weight.release)(from, static_cast<std::size_t>(dtype_bytes(c.dtype, elements)));
}

}  // namespace sluice
