#include "cpu/stored_scale.h"

#include <cmath>
#include <string>

#include "core/error.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice::cpu {
namespace {

StoredScale stored_nvfp4(std::uint8_t code) {
  StoredScale s;
  const std::uint32_t magnitude = code & 0x7Fu;
  s.flip = (code & 0x80u) != 0 ? 0x88888888u : 0u;
  s.nan = magnitude == 0x7Fu;
  if (s.nan || magnitude == 0) {
    s.keep = 0;
    return s;
  }
  int exponent = 0;
  const float fraction = std::frexp(to_float(E4m3{static_cast<std::uint8_t>(magnitude)}), &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<std::uint32_t>(fraction * 16.0f) - 8;
  s.byte = static_cast<std::uint8_t>((8 - (exponent - 1)) * 8 + static_cast<int>(mantissa));
  return s;
}

StoredScale stored_mxfp4(std::uint8_t code) {
  StoredScale s;
  s.nan = code == kE8m0Nan;
  s.keep = s.nan ? 0 : s.keep;
  s.byte = s.nan ? kMxfp4One : static_cast<std::uint8_t>(254 - code);
  return s;
}

ScaleTable make_scale_table(StoredScale (*stored)(std::uint8_t)) {
  ScaleTable t;
  for (int i = 0; i < 256; ++i) t[i] = stored(static_cast<std::uint8_t>(i));
  return t;
}

}  // namespace

const ScaleTable& scale_table(Format format) {
  static const ScaleTable kNvfp4 = make_scale_table(stored_nvfp4), kMxfp4 = make_scale_table(stored_mxfp4);
  return format == Format::nvfp4 ? kNvfp4 : kMxfp4;
}

void check_mxfp4_scale(std::uint8_t code) {
  if (code < 253 || code == kE8m0Nan) return;
  fail(ErrorCode::unsupported, "an MXFP4 block scale of 2^" + std::to_string(code - 127), "at most 2^125",
       "larger values are beyond bf16");
}

}  // namespace sluice::cpu
