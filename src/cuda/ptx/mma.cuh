// Tensor core products of one warp (mma.sync) and the conversions between e4m3 and f16 that go with them.
//
// Called by the kernels of cuda/sm90. Stateless wrappers of one or two instructions each. Products: D[16, 8] += A[16,
// 16] x B[16, 8] in fp32; lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of A (a0, a2 and a1, a3), column g
// of B, and columns 2 t, 2 t + 1 of these rows of D.
#pragma once

#include <cstdint>

namespace sluice::cuda::ptx {

__device__ __forceinline__ void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                        std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two e4m3 codes, the first in the low byte, as two f16: exact.
__device__ __forceinline__ std::uint32_t f16_of_codes(std::uint32_t codes) {
  std::uint32_t pair;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %1;\n cvt.rn.f16x2.e4m3x2 %0, low;\n}\n"
      : "=r"(pair)
      : "r"(codes));
  return pair;
}

// The same of the two codes in the high half: one instruction, where a shift before it would be a second one.
__device__ __forceinline__ std::uint32_t f16_of_high_codes(std::uint32_t codes) {
  std::uint32_t pair;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %1;\n cvt.rn.f16x2.e4m3x2 %0, high;\n}\n"
      : "=r"(pair)
      : "r"(codes));
  return pair;
}

// The e4m3 codes that four f16 stand for.
__device__ __forceinline__ std::uint32_t codes_of_f16(std::uint32_t low, std::uint32_t high) {
  std::uint16_t a, b;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(a) : "r"(low));
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(b) : "r"(high));
  return a | static_cast<std::uint32_t>(b) << 16;
}

}  // namespace sluice::cuda::ptx
