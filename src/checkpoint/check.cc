#include "checkpoint/check.h"

#include <cstring>

namespace sluice::ckpt {
namespace {

// How a type spells NaN and infinity: with all exponent bits set and the mantissa non-zero or zero; in e4m3 only all
// bits set is NaN, in e8m0 (which has no sign) likewise.
struct Encoding {
  std::uint64_t exponent = 0;  // mask
  std::uint64_t mantissa = 0;  // mask; 0 = no such values
  bool only_all_ones = false;
};

Encoding encoding_of(DType type) {
  switch (type) {
    case DType::f64:
      return {0x7FF0000000000000u, 0x000FFFFFFFFFFFFFu};
    case DType::f32:
      return {0x7F800000u, 0x007FFFFFu};
    case DType::f16:
      return {0x7C00u, 0x03FFu};
    case DType::bf16:
      return {0x7F80u, 0x007Fu};
    case DType::e5m2:
      return {0x7Cu, 0x03u};
    case DType::e4m3:
      return {0x78u, 0x07u, true};
    case DType::e8m0:
      return {0xF0u, 0x0Fu, true};
    default:
      return {};
  }
}

// Elements may lie at any byte, hence the copy.
template <class Unsigned>
NonFiniteCount scan(const TensorEntry& tensor, const Encoding& encoding) {
  NonFiniteCount out;
  const auto count = static_cast<std::int64_t>(tensor.bytes / sizeof(Unsigned));
  for (std::int64_t i = 0; i < count; ++i) {
    Unsigned bits;
    std::memcpy(&bits, tensor.data + static_cast<std::size_t>(i) * sizeof(Unsigned), sizeof(Unsigned));
    if ((bits & encoding.exponent) != encoding.exponent) continue;
    const std::uint64_t mantissa = bits & encoding.mantissa;
    if (encoding.only_all_ones && mantissa != encoding.mantissa) continue;
    if (out.first < 0) out.first = i;
    ++(mantissa != 0 ? out.nan : out.infinite);
  }
  return out;
}

}  // namespace

NonFiniteCount count_non_finite(const TensorEntry& tensor) {
  const Encoding encoding = encoding_of(tensor.dtype);
  if (encoding.mantissa == 0) return {};
  switch (dtype_bits(tensor.dtype)) {
    case 8:
      return scan<std::uint8_t>(tensor, encoding);
    case 16:
      return scan<std::uint16_t>(tensor, encoding);
    case 32:
      return scan<std::uint32_t>(tensor, encoding);
    default:
      return scan<std::uint64_t>(tensor, encoding);
  }
}

}  // namespace sluice::ckpt
