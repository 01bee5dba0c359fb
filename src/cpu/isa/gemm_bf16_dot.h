// vdpbf16ps, which adds two bf16 products to each f32 lane. It rounds its two additions to nearest even, odd k first,
// and treats subnormal inputs and results as zero. Included by the unit that has the instruction.
#pragma once

#include "cpu/isa/gemm_avx512_lanes.h"

namespace sluice::cpu {
namespace {

struct Bf16Dot {
  using Vector = Zmm;
  using X = std::uint16_t;
  using W = __m512bh;
  static constexpr int kRecordBytes = 128;
  static SLUICE_INLINE W load(const char* record, int panel) {
    return (__m512bh)_mm512_loadu_si512(record + panel * kLineBytes);
  }
  static SLUICE_INLINE __m512 mac(__m512 acc, W w, const X* x) {
    std::int32_t pair = 0;
    std::memcpy(&pair, x, sizeof(pair));
    return _mm512_dpbf16_ps(acc, w, (__m512bh)_mm512_set1_epi32(pair));
  }
};

}  // namespace
}  // namespace sluice::cpu
