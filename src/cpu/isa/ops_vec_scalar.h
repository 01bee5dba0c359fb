// Sixteen floats as plain loops: the vector of processors without AVX2, and what the other two are compared with.
//
// Included by one unit only. Everything in the isa/ops_vec_*.h headers has internal linkage: a function compiled with
// wide instructions must never be the one the linker picks for the rest of the program.
#pragma once

#include <cstdint>
#include <cstring>

namespace sluice::cpu {
namespace {

inline constexpr int kScorePanels = 1;  // register block of q k: 4 query rows x this many K panels
inline constexpr int kValueVecs = 1;    // register block of p v: 4 query rows x this many vectors of V

struct V {
  float v[16];
};

template <class F>
inline V lanewise(F f) {
  V r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}

inline std::uint32_t bits_of(float x) {
  std::uint32_t b = 0;
  std::memcpy(&b, &x, sizeof(b));
  return b;
}
inline float float_of(std::uint32_t b) {
  float x = 0;
  std::memcpy(&x, &b, sizeof(x));
  return x;
}

inline V broadcast(float x) {
  return lanewise([&](int) { return x; });
}
inline V zero() { return broadcast(0.0f); }
inline V load(const float* p) {
  return lanewise([&](int i) { return p[i]; });
}
inline V load_part(const float* p, int n) {  // zeros beyond n
  return lanewise([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store(float* p, V a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline void store_part(float* p, V a, int n) { std::memcpy(p, a.v, sizeof(float) * static_cast<std::size_t>(n)); }

inline V add(V a, V b) {
  return lanewise([&](int i) { return a.v[i] + b.v[i]; });
}
inline V sub(V a, V b) {
  return lanewise([&](int i) { return a.v[i] - b.v[i]; });
}
inline V mul(V a, V b) {
  return lanewise([&](int i) { return a.v[i] * b.v[i]; });
}
inline V div(V a, V b) {
  return lanewise([&](int i) { return a.v[i] / b.v[i]; });
}
inline V sqrt(V a) {
  return lanewise([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
inline V fma(V a, V b, V c) { return add(mul(a, b), c); }  // without the instruction it would be a library call a lane
// Both give b where a or b is NaN.
inline V max(V a, V b) {
  return lanewise([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline V min(V a, V b) {
  return lanewise([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline V negate(V a) {
  return lanewise([&](int i) { return -a.v[i]; });
}

// Comparisons give one bit a lane.
inline std::uint32_t at_least(V a, V b) {
  std::uint32_t m = 0;
  for (int i = 0; i < 16; ++i) m |= static_cast<std::uint32_t>(a.v[i] >= b.v[i]) << i;
  return m;
}
inline std::uint32_t equal(V a, V b) {
  std::uint32_t m = 0;
  for (int i = 0; i < 16; ++i) m |= static_cast<std::uint32_t>(a.v[i] == b.v[i]) << i;
  return m;
}
inline std::uint32_t unordered(V a) {
  std::uint32_t m = 0;
  for (int i = 0; i < 16; ++i) m |= static_cast<std::uint32_t>(a.v[i] != a.v[i]) << i;
  return m;
}
inline V select(std::uint32_t mask, V yes, V no) {
  return lanewise([&](int i) { return (mask >> i & 1u) != 0 ? yes.v[i] : no.v[i]; });
}
// x, but zero where a < b.
inline V zero_where_less(V x, V a, V b) {
  return lanewise([&](int i) { return a.v[i] < b.v[i] ? 0.0f : x.v[i]; });
}

// x * 2^n, n = shifted - 1.5 * 2^23 an integer. In two steps, so that results below the normal range are right too.
inline V scale_by_power(V x, V shifted) {
  return lanewise([&](int i) {
    const auto n = static_cast<std::int32_t>(bits_of(shifted.v[i]) - bits_of(12582912.0f));
    const std::int32_t half = n >> 1;
    const float a = float_of(static_cast<std::uint32_t>(half + 127) << 23);
    const float b = float_of(static_cast<std::uint32_t>(n - half + 127) << 23);
    return x.v[i] * a * b;
  });
}

inline V load_bf16(const std::uint16_t* p) {
  return lanewise([&](int i) { return float_of(static_cast<std::uint32_t>(p[i]) << 16); });
}
// Sixteen pairs of bf16: the even and the odd elements.
inline void load_pairs(const void* line, V& even, V& odd) {
  std::uint32_t words[16];
  std::memcpy(words, line, sizeof(words));
  even = lanewise([&](int i) { return float_of(words[i] << 16); });
  odd = lanewise([&](int i) { return float_of(words[i] & 0xFFFF0000u); });
}
inline void store_bf16(std::uint16_t* p, V a) {
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t b = bits_of(a.v[i]);
    const std::uint32_t rounded = (b + 0x7FFFu + (b >> 16 & 1u)) >> 16;
    const bool nan = (b & 0x7FFFFFFFu) > 0x7F800000u;
    p[i] = static_cast<std::uint16_t>(nan ? (b >> 16 & 0x8000u) | 0x7FC0u : rounded);
  }
}

// out[16 w + r] = in[stride r + w] for 16 x 16 words, whatever they hold.
inline void transpose(const float* in, std::int64_t stride, float* out) {
  for (int w = 0; w < 16; ++w) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(out + 16 * w + r, in + r * stride + w, 4);
  }
}

// Even and odd elements of a then b, and back.
inline void deinterleave(V a, V b, V& even, V& odd) {
  even = lanewise([&](int i) { return i < 8 ? a.v[2 * i] : b.v[2 * i - 16]; });
  odd = lanewise([&](int i) { return i < 8 ? a.v[2 * i + 1] : b.v[2 * i - 15]; });
}
inline void interleave(V even, V odd, V& a, V& b) {
  a = lanewise([&](int i) { return (i & 1) != 0 ? odd.v[i / 2] : even.v[i / 2]; });
  b = lanewise([&](int i) { return (i & 1) != 0 ? odd.v[8 + i / 2] : even.v[8 + i / 2]; });
}

inline float reduce_add(V a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] += a.v[i + step];
  }
  return a.v[0];
}
inline float reduce_max(V a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
  }
  return a.v[0];
}

}  // namespace
}  // namespace sluice::cpu
