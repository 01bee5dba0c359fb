#include "dispatch/row_records.h"

#include <span>

#include "core/rounding.h"
#include "numerics/bf16.h"
#include "numerics/block_nvfp4.h"

namespace sluice {
namespace {

constexpr std::int64_t kPitchBytes = 16;

std::int64_t code_bytes(std::int64_t width) { return ceil_div(width, 2); }
std::int64_t scale_bytes(std::int64_t width) { return ceil_div(width, kNvfp4Block); }

std::int64_t ids_at(const RecordFormat& f) {
  return rounded_up(f.payload_bytes(), static_cast<std::int64_t>(sizeof(SlotId)));
}

}  // namespace

std::int64_t RecordFormat::payload_bytes() const {
  return nvfp4() ? code_bytes(width) + scale_bytes(width) : dtype_bytes(dtype, width);
}

std::int64_t RecordFormat::bytes() const {
  constexpr std::int64_t kRouteBytes = sizeof(SlotId) + sizeof(float);
  return rounded_up(ids_at(*this) + top_k * kRouteBytes, kPitchBytes);
}

SlotId* Records::ids(std::int64_t row) const {
  return reinterpret_cast<SlotId*>(data + row * format.bytes() + ids_at(format));
}

float* Records::weights(std::int64_t row) const { return reinterpret_cast<float*>(ids(row) + format.top_k); }

ConstTensorView Records::hidden() const {
  return {data, format.dtype, rows, format.width, format.bytes() / dtype_bytes(format.dtype, 1)};
}

QuantizedRows Records::quantized() const {
  QuantizedRows q;
  q.codes = {data, DType::e2m1, rows, format.width, format.bytes() * 2};
  q.block_scales = {data + code_bytes(format.width), DType::e4m3, rows, scale_bytes(format.width), format.bytes()};
  q.encode_scale = format.encode_scale;
  return q;
}

void encode_payload(const RecordFormat& format, const ConstTensorView& hidden, std::int64_t row, float* values,
                    std::byte* out) {
  for (std::int64_t c = 0; c < format.width; ++c) values[c] = to_float(hidden.row<Bf16>(row)[c]);
  auto* codes = reinterpret_cast<std::uint8_t*>(out);
  const auto span = [](std::uint8_t* at, std::int64_t n) { return std::span(at, static_cast<std::size_t>(n)); };
  quantize_nvfp4_row({values, static_cast<std::size_t>(format.width)}, format.encode_scale,
                     span(codes, code_bytes(format.width)),
                     span(codes + code_bytes(format.width), scale_bytes(format.width)));
}

}  // namespace sluice
