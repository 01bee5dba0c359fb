// Plain C++ for every x86-64 processor. Products are rounded before they are added: the baseline has no fused
// multiply-add. (For bf16 operands that makes no difference, their products are exact.)
#include <cstdint>
#include <cstring>

#include "cpu/isa/gemm_epilogue.h"

namespace sluice::cpu {
namespace {

struct Plain {
  struct F {
    float v[kPanelRows];
  };
  static constexpr int kPanels = 1;
  static constexpr int kTokens = 1;
  static constexpr int kBothPanelTokens = 0;
  static constexpr int kSteps = 1;

  template <class Op>
  static SLUICE_INLINE F each(Op op) {
    F r;
    for (int i = 0; i < kPanelRows; ++i) r.v[i] = op(i);
    return r;
  }
  static SLUICE_INLINE std::uint32_t bits(float v) {
    std::uint32_t b = 0;
    std::memcpy(&b, &v, sizeof(b));
    return b;
  }
  static SLUICE_INLINE float from_bits(std::uint32_t b) {
    float v = 0.0f;
    std::memcpy(&v, &b, sizeof(v));
    return v;
  }
  static SLUICE_INLINE std::uint32_t half(const char* p, int i) {
    std::uint16_t b = 0;
    std::memcpy(&b, p + 2 * i, sizeof(b));
    return b;
  }

  static SLUICE_INLINE F broadcast(float v) {
    return each([&](int) { return v; });
  }
  static SLUICE_INLINE F zero() { return broadcast(0.0f); }
  static SLUICE_INLINE F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static SLUICE_INLINE void store(float* p, const F& v) { std::memcpy(p, v.v, sizeof(v.v)); }
  static SLUICE_INLINE F add(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static SLUICE_INLINE F sub(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static SLUICE_INLINE F mul(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static SLUICE_INLINE F div(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  static SLUICE_INLINE F fma(const F& a, const F& b, const F& c) { return add(mul(a, b), c); }

  static SLUICE_INLINE F at_most(const F& v, const F& limit) {
    return each([&](int i) { return v.v[i] > limit.v[i] ? limit.v[i] : v.v[i]; });
  }
  static SLUICE_INLINE F at_least(const F& v, const F& limit) {
    return each([&](int i) { return v.v[i] < limit.v[i] ? limit.v[i] : v.v[i]; });
  }
  static SLUICE_INLINE F less(const F& a, const F& b, const F& yes, const F& no) {
    return each([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
  }

  static SLUICE_INLINE F bit_xor(const F& a, const F& b) {
    return each([&](int i) { return from_bits(bits(a.v[i]) ^ bits(b.v[i])); });
  }
  static SLUICE_INLINE F negate(const F& v) { return bit_xor(v, broadcast(-0.0f)); }
  static SLUICE_INLINE F abs(const F& v) {
    return each([&](int i) { return from_bits(bits(v.v[i]) & 0x7FFFFFFFu); });
  }
  // 2^floor(log2 v) of a positive normal number, 0 below.
  static SLUICE_INLINE F exponent(const F& v) {
    return each([&](int i) { return from_bits(bits(v.v[i]) & 0x7F800000u); });
  }
  static SLUICE_INLINE F copy_sign(const F& size, const F& sign) {
    return each([&](int i) { return from_bits((bits(size.v[i]) & 0x7FFFFFFFu) | (bits(sign.v[i]) & 0x80000000u)); });
  }
  // Adding and subtracting 1.5 * 2^23 leaves the nearest integer, for |v| < 2^22.
  static SLUICE_INLINE F round(const F& v) { return sub(add(v, broadcast(12582912.0f)), broadcast(12582912.0f)); }
  // v * 2^n for integers n from -160 to 160, in two factors so that each is a normal number.
  static SLUICE_INLINE float ldexp_one(float v, float n) {
    const int whole = n == n ? static_cast<int>(n) : 0;
    const int first = whole >> 1;
    const int second = whole - first;
    return v * from_bits(static_cast<std::uint32_t>(first + 127) << 23) *
           from_bits(static_cast<std::uint32_t>(second + 127) << 23);
  }
  static SLUICE_INLINE F ldexp(const F& v, const F& n) {
    return each([&](int i) { return ldexp_one(v.v[i], n.v[i]); });
  }

  static SLUICE_INLINE F bf16_even(const char* line) {
    return each([&](int i) { return from_bits(half(line, 2 * i) << 16); });
  }
  static SLUICE_INLINE F bf16_odd(const char* line) {
    return each([&](int i) { return from_bits(half(line, 2 * i + 1) << 16); });
  }
  static SLUICE_INLINE F load_bf16(const char* p) {
    return each([&](int i) { return from_bits(half(p, i) << 16); });
  }
  // Bits rounded to the upper half, ties to even, quiet NaNs: as to_bf16.
  static SLUICE_INLINE std::uint32_t rounded(float v) {
    const std::uint32_t b = bits(v);
    if (v != v) return (b & 0x80000000u) | 0x7FC00000u;
    return b + 0x7FFFu + (b >> 16 & 1u);
  }
  static SLUICE_INLINE F round_bf16(const F& v) {
    return each([&](int i) { return from_bits(rounded(v.v[i]) & 0xFFFF0000u); });
  }
  static SLUICE_INLINE void store_bf16(char* p, const F& v) {
    for (int i = 0; i < kPanelRows; ++i) {
      const auto b = static_cast<std::uint16_t>(rounded(v.v[i]) >> 16);
      std::memcpy(p + 2 * i, &b, sizeof(b));
    }
  }

  struct I {
    std::uint32_t v[kPanelRows];
  };
  template <class Op>
  static SLUICE_INLINE I each_32(Op op) {
    I r;
    for (int i = 0; i < kPanelRows; ++i) r.v[i] = op(i);
    return r;
  }
  // Byte i of the result from op(i).
  template <class Op>
  static SLUICE_INLINE I each_byte(Op op) {
    std::uint8_t bytes[kLineBytes];
    for (int i = 0; i < kLineBytes; ++i) bytes[i] = op(i);
    return load_bits(reinterpret_cast<const char*>(bytes));
  }
  static SLUICE_INLINE std::uint8_t byte(const I& v, int i) {
    return static_cast<std::uint8_t>(v.v[i / 4] >> (i % 4 * 8));
  }
  static SLUICE_INLINE I load_bits(const char* p) {
    I r;
    std::memcpy(r.v, p, sizeof(r.v));
    return r;
  }
  static SLUICE_INLINE I broadcast_32(std::uint32_t v) {
    return each_32([&](int) { return v; });
  }
  static SLUICE_INLINE I no_bits() { return broadcast_32(0); }
  static SLUICE_INLINE I bytes_to_32(const char* p) {
    return each_32([&](int i) { return static_cast<std::uint32_t>(static_cast<std::uint8_t>(p[i])); });
  }
  static SLUICE_INLINE I bits_and(const I& v, std::uint32_t mask) {
    return each_32([&](int i) { return v.v[i] & mask; });
  }
  static SLUICE_INLINE I add_32(const I& a, const I& b) {
    return each_32([&](int i) { return a.v[i] + b.v[i]; });
  }
  static SLUICE_INLINE I sub_32(const I& a, const I& b) {
    return each_32([&](int i) { return a.v[i] - b.v[i]; });
  }
  template <int N>
  static SLUICE_INLINE I shift_left(const I& v) {
    return each_32([&](int i) { return v.v[i] << N; });
  }
  template <int N>
  static SLUICE_INLINE I shift_right(const I& v) {
    return each_32([&](int i) { return v.v[i] >> N; });
  }
  template <int N>
  static SLUICE_INLINE I shift_right_signed(const I& v) {
    return each_32([&](int i) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(v.v[i]) >> N); });
  }
  template <class Table>
  static SLUICE_INLINE I look_up(const Table& table, const I& index) {
    return each_byte([&](int i) { return table.v[byte(index, i)]; });
  }
  // Bytes 0 to 7, or 8 to 15, of each 16.
  static SLUICE_INLINE I interleave(const I& a, const I& b, int first) {
    return each_byte([&](int i) { return byte(i % 2 == 0 ? a : b, i / 16 * 16 + first + i % 16 / 2); });
  }
  static SLUICE_INLINE I interleave_low(const I& a, const I& b) { return interleave(a, b, 0); }
  static SLUICE_INLINE I interleave_high(const I& a, const I& b) { return interleave(a, b, 8); }
  static SLUICE_INLINE F floats(const I& v) {
    return each([&](int i) { return from_bits(v.v[i]); });
  }
  static SLUICE_INLINE bool has_e4m3_nan(const I& v) {
    bool nan = false;
    for (int i = 0; i < kLineBytes; ++i) nan = nan || (byte(v, i) & 0x7F) == 0x7F;
    return nan;
  }
  static SLUICE_INLINE void store_pair(char* p, const F& even, const F& odd) {
    const I both = each_32([&](int i) { return bits(even.v[i]) >> 16 | (bits(odd.v[i]) & 0xFFFF0000u); });
    std::memcpy(p, both.v, sizeof(both.v));
  }
};

constexpr GemmKernels kTable = make_table<Plain, Bf16Weights<Plain>>("scalar", Element::f32);

}  // namespace

const GemmKernels& gemm_scalar() { return kTable; }

}  // namespace sluice::cpu
