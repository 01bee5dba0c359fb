// One matrix on its way from the source to an exported file: its rows, whatever their order, and their encoding in
// bands, so that memory does not grow with the matrix.
//
// Called by the exporter (export.h) from several threads, each with a matrix of its own. Non-owning: the weights live
// in the WeightSource. A weight that already has the wanted format keeps its codes and scales bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/export_format.h"
#include "moe/weights.h"

namespace sluice::ckpt {

// The rows of one weight, or of gate and up taken together as some files hold them.
struct MatrixRows {
  enum class Order : std::uint8_t { single, interleaved, first_then_second };
  Order order = Order::single;
  QuantTensor first;   // gate of the two, or the one
  QuantTensor second;  // not for Order::single

  std::int64_t rows() const { return order == Order::single ? first.codes.rows : 2 * first.codes.rows; }
  std::int64_t cols() const { return first.codes.cols; }
  struct At {
    const QuantTensor* weight;
    std::int64_t row;
  };
  At at(std::int64_t row) const;
};

// Rows of a band: bands of all formats start at a multiple of it.
inline constexpr std::int64_t kBandRows = 128;

// Whether the weight is stored exactly as the target wants it.
bool has_format(const MatrixRows& matrix, const ExportTarget& target);

// Largest magnitude of all values; NaN does not count.
float amax_of(const MatrixRows& matrix);

// Codes and scales of `count` rows from `first` on, as the file wants them: dense rows.
struct EncodedBand {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;  // empty in formats without block scales
};
// `tensor_scale` is used by formats that have one (a decode multiplier), and ignored for has_format weights.
EncodedBand encode_band(const MatrixRows& matrix, const ExportTarget& target, float tensor_scale, std::int64_t first,
                        std::int64_t count);

// The whole matrix in bf16, transposed: [cols, rows]. Takes memory for it in fp32.
std::vector<std::byte> encode_transposed_bf16(const MatrixRows& matrix);

}  // namespace sluice::ckpt
