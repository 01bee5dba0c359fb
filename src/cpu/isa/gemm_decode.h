// Stored panels (gemm_kernels.h) > bf16 panels: 4-bit codes in plain loops over 16 rows that the compiler turns into
// vectors of whatever the unit has, fp8 by a table. Included by the units; exact, so that every unit decodes to the
// same bits (values below 2^-126 apart, which may become zero).
#pragma once

#include "cpu/isa/gemm_body.h"

namespace sluice::cpu {
namespace {

constexpr int kRecordK = 64;                  // k of a record of 4-bit codes
constexpr int kPanelLine = 64;                // bytes of a panel's codes in a step of a stored record
constexpr int kDecodedLine = 2 * kPanelLine;  // a k pair of both panels, decoded

SLUICE_INLINE std::uint32_t float_bits(float v) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

SLUICE_INLINE float bits_float(std::uint32_t bits) {
  float v = 0.0f;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}

// bf16 bits of a magnitude of e4m3 (bits 0-6).
constexpr std::uint32_t e4m3_to_bf16(std::uint32_t magnitude) {
  if (magnitude == 0x7F) return 0x7FC0;
  if (magnitude >= 8) return (magnitude << 4) + (120u << 7);
  std::uint32_t exponent = 121, mantissa = magnitude;  // magnitude * 2^-9
  if (magnitude == 0) return 0;
  while (mantissa < 8) {
    mantissa <<= 1;
    --exponent;
  }
  return exponent << 7 | (mantissa & 7u) << 4;
}

struct E4m3Table {
  std::uint16_t bf16[256];
};
constexpr E4m3Table e4m3_table() {
  E4m3Table t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    t.bf16[i] = static_cast<std::uint16_t>(e4m3_to_bf16(i & 0x7Fu) | (i & 0x80u) << 8);
  }
  return t;
}
inline constexpr E4m3Table kE4m3Table = e4m3_table();

SLUICE_INLINE void decode_fp8_line(const char* line, char* to) {
  for (int pair = 0; pair < 2; ++pair) {
    std::uint16_t codes[kPanelRows];
    std::uint32_t out[kPanelRows];
    for (int quad = 0; quad < 4; ++quad) std::memcpy(codes + 4 * quad, line + quad * 16 + pair * 8, 8);
    for (int r = 0; r < kPanelRows; ++r) {
      out[r] = kE4m3Table.bf16[codes[r] & 0xFF] | static_cast<std::uint32_t>(kE4m3Table.bf16[codes[r] >> 8]) << 16;
    }
    std::memcpy(to + pair * kDecodedLine, out, sizeof(out));
  }
}

inline void decode_fp8(const DecodeArgs& a) {
  const char* from = static_cast<const char*>(a.weights);
  char* to = static_cast<char*>(a.panels);
  for (std::int64_t k = 0; k < a.k_pairs; k += 2, from += 2 * kPanelLine, to += 2 * kDecodedLine) {
    for (int panel = 0; panel < 2; ++panel) decode_fp8_line(from + panel * kPanelLine, to + panel * kPanelLine);
  }
}

// Bits of e2m1 times a power of two, as f32. `exponent` is the f32 exponent field that 1.0 gets.
SLUICE_INLINE std::uint32_t e2m1_bits(std::uint32_t code, std::uint32_t exponent) {
  const std::uint32_t magnitude = code & 7u;
  const std::uint32_t normal = (magnitude << 22) + ((exponent - 1u) << 23);
  const std::uint32_t half = magnitude == 0 ? 0u : (exponent - 1u) << 23;
  return magnitude < 2 ? half : normal;
}

struct Nvfp4Code {
  static constexpr int kGroups = 4;
  static SLUICE_INLINE std::uint32_t bits(std::uint32_t code, std::uint32_t scale) {
    const float value = bits_float(e2m1_bits(code, 127u + 8u - (scale >> 3)));
    const float product = value * (1.0f + 0.125f * static_cast<float>(static_cast<std::int32_t>(scale & 7u)));
    return float_bits(product) | (code & 8u) << 28;
  }
};

struct Mxfp4Code {
  static constexpr int kGroups = 2;
  // In two factors, because the smallest scales are below the exponents of e2m1_bits.
  static SLUICE_INLINE std::uint32_t bits(std::uint32_t code, std::uint32_t scale) {
    const float low = scale > 190u ? 0x1p-64f : 1.0f;
    const std::uint32_t exponent = 254u - (scale > 190u ? scale - 64u : scale);
    return float_bits(bits_float(e2m1_bits(code, exponent)) * low) | (code & 8u) << 28;
  }
};

// One panel's line of codes, 16 rows x 8 k, with the scales of the rows.
template <class Code>
SLUICE_INLINE void decode_fp4_line(const char* line, const std::uint8_t* scales, char* to) {
  std::uint32_t words[kPanelRows];
  std::memcpy(words, line, sizeof(words));
  for (int j = 0; j < 4; ++j, to += kDecodedLine) {
    std::uint32_t out[kPanelRows];
    for (int r = 0; r < kPanelRows; ++r) {
      const std::uint32_t even = words[r] >> (4 * j) & 15u, odd = words[r] >> (16 + 4 * j) & 15u;
      out[r] = Code::bits(even, scales[r]) >> 16 | (Code::bits(odd, scales[r]) & 0xFFFF0000u);
    }
    std::memcpy(to, out, sizeof(out));
  }
}

template <class Code>
void decode_fp4(const DecodeArgs& a) {
  constexpr int kOctets = kRecordK / 8;
  constexpr int kScaleBytes = Code::kGroups * kPairRows;
  const char* from = static_cast<const char*>(a.weights);
  char* to = static_cast<char*>(a.panels);
  for (std::int64_t k = 0; k < a.k_pairs; k += kRecordK / 2) {
    std::uint8_t scales[kScaleBytes];
    std::memcpy(scales, from, sizeof(scales));
    from += kScaleBytes;
    for (int octet = 0; octet < kOctets; ++octet, to += 4 * kDecodedLine) {
      const std::uint8_t* group = scales + octet * Code::kGroups / kOctets * kPairRows;
      for (int panel = 0; panel < 2; ++panel, from += kPanelLine) {
        decode_fp4_line<Code>(from, group + panel * kPanelRows, to + panel * kPanelLine);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
