// Quantises rows of inputs, over a vector class V (see gemm_body.h), with the rules of numerics/block_fp8.h,
// block_nvfp4.h and block_mx.h: what is written are the values of the codes times their block scales, bit for bit.
// (Those functions are not used here, because the units share no inline function with the rest of the program.)
#pragma once

#include "cpu/isa/gemm_decode.h"
#include "cpu/isa/gemm_elements.h"

namespace sluice::cpu {
namespace {

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

constexpr float kLargest = 0x1.fffffep127f;
constexpr float kSmallestNormal = 0x1p-126f;

// Nearest multiple of size / 2^Bits of its binade, ties to even, with the step of `smallest` below that; at most
// `most`.
template <class V, int Bits>
SLUICE_INLINE typename V::F round_to(typename V::F v, float smallest, float most) {
  const typename V::F size = V::at_most(V::abs(v), V::broadcast(most));
  const typename V::F binade = V::at_least(V::exponent(size), V::broadcast(smallest));
  // The sum lies in a binade whose last bit is that step.
  const typename V::F magic = V::mul(binade, V::broadcast(1.5f * static_cast<float>(1 << (23 - Bits))));
  return V::copy_sign(V::sub(V::add(size, magic), magic), v);
}

template <class V>
SLUICE_INLINE typename V::F round_e4m3(typename V::F v) {
  return round_to<V, 3>(v, 0x1p-6f, 448.0f);
}

template <class V>
SLUICE_INLINE typename V::F round_e2m1(typename V::F v) {
  return round_to<V, 1>(v, 1.0f, 6.0f);
}

template <class V>
SLUICE_INLINE float first_lane(typename V::F v) {
  alignas(64) float lanes[kPanelRows];
  V::store(lanes, v);
  return lanes[0];
}

// Infinity becomes the largest number.
template <class V>
SLUICE_INLINE typename V::F load_input(const QuantizeArgs& a, std::int64_t column, std::int64_t lanes) {
  typename V::F v = load_elements<V>(static_cast<const char*>(a.x) + bytes_of(a.from, column), a.from, lanes);
  if (a.factor != nullptr) v = V::round_bf16(V::mul(v, V::broadcast(*a.factor)));
  return V::at_least(V::at_most(v, V::broadcast(kLargest)), V::broadcast(-kLargest));
}

SLUICE_INLINE std::int64_t lanes_of(std::int64_t column, std::int64_t last) {
  return last - column < kLanes ? last - column : kLanes;
}

// Largest magnitude of columns [first, last) that is no NaN.
template <class V>
SLUICE_INLINE float largest(const QuantizeArgs& a, std::int64_t first, std::int64_t last) {
  typename V::F most = V::zero();
  for (std::int64_t c = first; c < last; c += kLanes) {
    most = V::at_least(most, V::abs(load_input<V>(a, c, lanes_of(c, last))));
  }
  alignas(64) float lanes[kPanelRows];
  V::store(lanes, most);
  float amax = 0.0f;
  for (const float lane : lanes) amax = lane > amax ? lane : amax;
  return amax;
}

template <class V>
SLUICE_INLINE void store_operand(const QuantizeArgs& a, std::int64_t column, typename V::F v, std::int64_t lanes) {
  const std::int64_t place = column / kSegmentK * a.segment_stride + column % kSegmentK;
  store_elements<V>(static_cast<char*>(a.out) + bytes_of(a.to, place), a.to, v, lanes);
}

// e4m3 codes of columns [first, last) under one scale.
template <class V>
SLUICE_INLINE void quantize_fp8(const QuantizeArgs& a, std::int64_t first, std::int64_t last, float scale) {
  for (std::int64_t c = first; c < last; c += kLanes) {
    const std::int64_t lanes = lanes_of(c, last);
    store_operand<V>(a, c, round_e4m3<V>(V::div(load_input<V>(a, c, lanes), V::broadcast(scale))), lanes);
  }
}

template <class V>
SLUICE_INLINE void quantize_fp8_row(const QuantizeArgs& a) {
  float scale = a.scale;
  if (a.rounding == Rounding::fp8_token) {
    const float amax = largest<V>(a, 0, a.cols);
    const float exact = amax / 448.0f;
    scale = amax == 0.0f ? 1.0f : exact > kSmallestNormal ? exact : kSmallestNormal;
  }
  a.scales[0] = scale;
  quantize_fp8<V>(a, 0, a.cols, scale);
}

template <class V>
SLUICE_INLINE void quantize_fp8_groups(const QuantizeArgs& a) {
  for (std::int64_t first = 0, g = 0; first < a.cols; first += kScaledK, ++g) {
    const std::int64_t last = first + kScaledK < a.cols ? first + kScaledK : a.cols;
    const float amax = largest<V>(a, first, last);
    const float scale = (amax > 1e-10f ? amax : 1e-10f) / 448.0f;
    a.scales[g] = scale;
    quantize_fp8<V>(a, first, last, scale);
  }
}

// One block of 16: the whole block is NaN when an element is.
template <class V>
SLUICE_INLINE void quantize_nvfp4_block(const QuantizeArgs& a, std::int64_t first) {
  const std::int64_t lanes = lanes_of(first, a.cols);
  const typename V::F v = load_input<V>(a, first, lanes);
  alignas(64) float values[kPanelRows];
  V::store(values, v);
  float amax = 0.0f;
  bool nan = false;
  for (const float value : values) {
    const float size = value < 0.0f ? -value : value;
    amax = size > amax ? size : amax;
    nan = nan || value != value;
  }
  if (nan) {
    const float invalid = bits_float(0x7FC00000u);
    if (a.block_scales != nullptr) a.block_scales[first / 16] = invalid;
    return store_operand<V>(a, first, V::broadcast(invalid), lanes);
  }
  const typename V::F scale = round_e4m3<V>(V::broadcast(a.scale * amax / 6.0f));
  if (a.block_scales != nullptr) a.block_scales[first / 16] = first_lane<V>(scale);
  const float inverse = 1.0f / (first_lane<V>(scale) * (1.0f / a.scale));
  const typename V::F multiplier = V::broadcast(inverse < kLargest ? inverse : kLargest);
  store_operand<V>(a, first, V::mul(round_e2m1<V>(V::mul(v, multiplier)), scale), lanes);
}

// The smallest power of two >= v, from 2^-127 to 2^127.
SLUICE_INLINE float power_above(float v) {
  const std::uint32_t field = float_bits(v) >> 23;
  const std::uint32_t below = field < 254u ? field : 254u;
  const float power = bits_float(below == 0 ? 0x00400000u : below << 23);
  return below < 254u && v > power ? bits_float((below + 1) << 23) : power;
}

template <class V>
SLUICE_INLINE void quantize_mxfp8_block(const QuantizeArgs& a, std::int64_t first) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t last = first + kBlock < a.cols ? first + kBlock : a.cols;
  const float scale = power_above(largest<V>(a, first, last) / 448.0f);
  if (a.block_scales != nullptr) a.block_scales[first / kBlock] = scale;
  for (std::int64_t c = first; c < last; c += kLanes) {
    const std::int64_t lanes = lanes_of(c, last);
    const typename V::F code = round_e4m3<V>(V::mul(load_input<V>(a, c, lanes), V::broadcast(1.0f / scale)));
    store_operand<V>(a, c, V::mul(code, V::broadcast(scale)), lanes);
  }
}

template <class V>
void quantize(const QuantizeArgs& a) {
  switch (a.rounding) {
    case Rounding::fp8_static:
    case Rounding::fp8_token:
      quantize_fp8_row<V>(a);
      break;
    case Rounding::fp8_group:
      quantize_fp8_groups<V>(a);
      break;
    case Rounding::nvfp4:
      for (std::int64_t c = 0; c < a.cols; c += 16) quantize_nvfp4_block<V>(a, c);
      break;
    case Rounding::mxfp8:
      for (std::int64_t c = 0; c < a.cols; c += 32) quantize_mxfp8_block<V>(a, c);
      break;
  }
  for (std::int64_t c = a.cols; c % kStoredK != 0; ++c) {
    const std::int64_t place = c / kSegmentK * a.segment_stride + c % kSegmentK;
    std::memset(static_cast<char*>(a.out) + bytes_of(a.to, place), 0, static_cast<std::size_t>(bytes_of(a.to, 1)));
  }
}

}  // namespace
}  // namespace sluice::cpu
