// Non-owning two-dimensional views. They carry shape and stride only; the memory belongs to a Buffer, a Workspace or a
// mapped file. Activations are TensorView / ConstTensorView: row-major, unit column stride, strides counted in
// elements. Weights, which may be transposed or interleaved in a file, are MatrixView (moe/weights.h).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace sluice {

struct TensorView {
  void* data = nullptr;  // [rows, cols] dtype; nullptr = absent
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // elements

  template <class T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
  explicit operator bool() const { return data != nullptr; }
};

struct ConstTensorView {
  const void* data = nullptr;  // [rows, cols] dtype; nullptr = absent
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // elements

  ConstTensorView() = default;
  ConstTensorView(const void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_, std::int64_t row_stride_)
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), row_stride(row_stride_) {}
  // A mutable view reads as a const one everywhere.
  ConstTensorView(const TensorView& v)  // NOLINT(google-explicit-constructor)
      : data(v.data), dtype(v.dtype), rows(v.rows), cols(v.cols), row_stride(v.row_stride) {}

  template <class T>
  const T* row(std::int64_t r) const {
    return static_cast<const T*>(data) + r * row_stride;
  }
  explicit operator bool() const { return data != nullptr; }
};

// A dense [rows, cols] view whose row stride equals its width.
inline TensorView dense_view(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return {data, dtype, rows, cols, cols};
}
inline ConstTensorView dense_view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return {data, dtype, rows, cols, cols};
}

}  // namespace sluice
