// Warpgroup matrix products, both operands in shared memory: D[64, N] (+)= A[64, 32 bytes] * B[N, 32 bytes]^T in fp32.
//
// Called by the GEMM kernels of cuda/sm90, by all four warps of a warpgroup together. Lane l of warp w holds in
// d[4 j + i] row 16 w + l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i % 2. Stateless.
#pragma once

#include <cstdint>
#include <type_traits>

namespace sluice::cuda::ptx {

// Operand in rows of 128 bytes, chunks of 16 swizzled by row & 7, starting at a multiple of 1024 (plus 32 k for the
// k-th slice of a row). The low word has the address, the rest is the same for all.
__device__ __forceinline__ std::uint32_t operand_low(std::uint32_t shared_address) {
  constexpr std::uint32_t kUnusedStride = 1u << 16;
  return kUnusedStride | ((shared_address & 0x3ffff) >> 4);
}

__device__ __forceinline__ std::uint64_t operand(std::uint32_t low) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kGroupStride = std::uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupStride | low;
}

__device__ __forceinline__ std::uint64_t swizzled_operand(std::uint32_t shared_address) {
  return operand(operand_low(shared_address));
}

// What to add to an operand to step 32 bytes along its rows.
inline constexpr std::uint64_t kSliceStep = 32 >> 4;

// Before the first product, and after registers of D were touched.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving accesses to d across.
template <int Count>
__device__ __forceinline__ void keep_in_registers(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

enum class Operand { bf16, e4m3 };

// wgmma<N, Type>(d, a, b, p): the first N / 2 registers of d; p = 0 starts from zero.
// clang-format off
#define SLUICE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SLUICE_R4 "%0,%1,%2,%3"
#define SLUICE_E4 SLUICE_D4(0)
#define SLUICE_R8 SLUICE_R4 ",%4,%5,%6,%7"
#define SLUICE_E8 SLUICE_E4, SLUICE_D4(4)
#define SLUICE_R12 SLUICE_R8 ",%8,%9,%10,%11"
#define SLUICE_E12 SLUICE_E8, SLUICE_D4(8)
#define SLUICE_R16 SLUICE_R12 ",%12,%13,%14,%15"
#define SLUICE_E16 SLUICE_E12, SLUICE_D4(12)
#define SLUICE_R20 SLUICE_R16 ",%16,%17,%18,%19"
#define SLUICE_E20 SLUICE_E16, SLUICE_D4(16)
#define SLUICE_R24 SLUICE_R20 ",%20,%21,%22,%23"
#define SLUICE_E24 SLUICE_E20, SLUICE_D4(20)
#define SLUICE_R28 SLUICE_R24 ",%24,%25,%26,%27"
#define SLUICE_E28 SLUICE_E24, SLUICE_D4(24)
#define SLUICE_R32 SLUICE_R28 ",%28,%29,%30,%31"
#define SLUICE_E32 SLUICE_E28, SLUICE_D4(28)
#define SLUICE_R36 SLUICE_R32 ",%32,%33,%34,%35"
#define SLUICE_E36 SLUICE_E32, SLUICE_D4(32)
#define SLUICE_R40 SLUICE_R36 ",%36,%37,%38,%39"
#define SLUICE_E40 SLUICE_E36, SLUICE_D4(36)
#define SLUICE_R44 SLUICE_R40 ",%40,%41,%42,%43"
#define SLUICE_E44 SLUICE_E40, SLUICE_D4(40)
#define SLUICE_R48 SLUICE_R44 ",%44,%45,%46,%47"
#define SLUICE_E48 SLUICE_E44, SLUICE_D4(44)
#define SLUICE_R52 SLUICE_R48 ",%48,%49,%50,%51"
#define SLUICE_E52 SLUICE_E48, SLUICE_D4(48)
#define SLUICE_R56 SLUICE_R52 ",%52,%53,%54,%55"
#define SLUICE_E56 SLUICE_E52, SLUICE_D4(52)
#define SLUICE_R60 SLUICE_R56 ",%56,%57,%58,%59"
#define SLUICE_E60 SLUICE_E56, SLUICE_D4(56)
#define SLUICE_R64 SLUICE_R60 ",%60,%61,%62,%63"
#define SLUICE_E64 SLUICE_E60, SLUICE_D4(60)
#define SLUICE_R80 SLUICE_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define SLUICE_E80 SLUICE_E64, SLUICE_D4(64), SLUICE_D4(68), SLUICE_D4(72), SLUICE_D4(76)
#define SLUICE_R96 SLUICE_R80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define SLUICE_E96 SLUICE_E80, SLUICE_D4(80), SLUICE_D4(84), SLUICE_D4(88), SLUICE_D4(92)
#define SLUICE_R112 SLUICE_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define SLUICE_E112 SLUICE_E96, SLUICE_D4(96), SLUICE_D4(100), SLUICE_D4(104), SLUICE_D4(108)
#define SLUICE_R128 SLUICE_R112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define SLUICE_E128 SLUICE_E112, SLUICE_D4(112), SLUICE_D4(116), SLUICE_D4(120), SLUICE_D4(124)

// `regs` names the registers of D, A, B, P the operands behind them.
#define SLUICE_WGMMA(n, type, k, name, transposes, regs, A, B, P, ...)                                       \
  template <int N, Operand Type, int Count>                                                                  \
  __device__ __forceinline__ auto wgmma(float (&d)[Count], std::uint64_t a, std::uint64_t b, int p)     \
      ->std::enable_if_t<N == n && Type == Operand::type> {                                                  \
    static_assert(Count >= n / 2);                                                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                              \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." #name "." #name " {" regs "}, " A ", " \
                 B ", p, 1, 1" transposes ";\n}\n"                                                           \
                 : __VA_ARGS__ : "l"(a), "l"(b), "r"(p));                                                    \
  }
#define SLUICE_WGMMA_BOTH(n, regs, A, B, P, ...)                                    \
  SLUICE_WGMMA(n, bf16, 16, bf16, ", 0, 0", regs, A, B, P, __VA_ARGS__)             \
  SLUICE_WGMMA(n, e4m3, 32, e4m3, "", regs, A, B, P, __VA_ARGS__)

SLUICE_WGMMA_BOTH(8, SLUICE_R4, "%4", "%5", "%6", SLUICE_E4)
SLUICE_WGMMA_BOTH(16, SLUICE_R8, "%8", "%9", "%10", SLUICE_E8)
SLUICE_WGMMA_BOTH(24, SLUICE_R12, "%12", "%13", "%14", SLUICE_E12)
SLUICE_WGMMA_BOTH(32, SLUICE_R16, "%16", "%17", "%18", SLUICE_E16)
SLUICE_WGMMA_BOTH(40, SLUICE_R20, "%20", "%21", "%22", SLUICE_E20)
SLUICE_WGMMA_BOTH(48, SLUICE_R24, "%24", "%25", "%26", SLUICE_E24)
SLUICE_WGMMA_BOTH(56, SLUICE_R28, "%28", "%29", "%30", SLUICE_E28)
SLUICE_WGMMA_BOTH(64, SLUICE_R32, "%32", "%33", "%34", SLUICE_E32)
SLUICE_WGMMA_BOTH(72, SLUICE_R36, "%36", "%37", "%38", SLUICE_E36)
SLUICE_WGMMA_BOTH(80, SLUICE_R40, "%40", "%41", "%42", SLUICE_E40)
SLUICE_WGMMA_BOTH(88, SLUICE_R44, "%44", "%45", "%46", SLUICE_E44)
SLUICE_WGMMA_BOTH(96, SLUICE_R48, "%48", "%49", "%50", SLUICE_E48)
SLUICE_WGMMA_BOTH(104, SLUICE_R52, "%52", "%53", "%54", SLUICE_E52)
SLUICE_WGMMA_BOTH(112, SLUICE_R56, "%56", "%57", "%58", SLUICE_E56)
SLUICE_WGMMA_BOTH(120, SLUICE_R60, "%60", "%61", "%62", SLUICE_E60)
SLUICE_WGMMA_BOTH(128, SLUICE_R64, "%64", "%65", "%66", SLUICE_E64)
SLUICE_WGMMA_BOTH(256, SLUICE_R128, "%128", "%129", "%130", SLUICE_E128)
// clang-format on

#undef SLUICE_D4
#undef SLUICE_R4
#undef SLUICE_E4
#undef SLUICE_R8
#undef SLUICE_E8
#undef SLUICE_R12
#undef SLUICE_E12
#undef SLUICE_R16
#undef SLUICE_E16
#undef SLUICE_R20
#undef SLUICE_E20
#undef SLUICE_R24
#undef SLUICE_E24
#undef SLUICE_R28
#undef SLUICE_E28
#undef SLUICE_R32
#undef SLUICE_E32
#undef SLUICE_R36
#undef SLUICE_E36
#undef SLUICE_R40
#undef SLUICE_E40
#undef SLUICE_R44
#undef SLUICE_E44
#undef SLUICE_R48
#undef SLUICE_E48
#undef SLUICE_R52
#undef SLUICE_E52
#undef SLUICE_R56
#undef SLUICE_E56
#undef SLUICE_R60
#undef SLUICE_E60
#undef SLUICE_R64
#undef SLUICE_E64
#undef SLUICE_R80
#undef SLUICE_E80
#undef SLUICE_R96
#undef SLUICE_E96
#undef SLUICE_R112
#undef SLUICE_E112
#undef SLUICE_R128
#undef SLUICE_E128
#undef SLUICE_WGMMA
#undef SLUICE_WGMMA_BOTH

}  // namespace sluice::cuda::ptx
