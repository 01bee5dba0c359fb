// Loads and stores of 16 elements in f32 or bf16, over a vector class V (see gemm_body.h). Included by the units.
#pragma once

#include "cpu/isa/gemm_body.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kLanes = kPanelRows;

SLUICE_INLINE std::int64_t bytes_of(Element e, std::int64_t count) { return count * (e == Element::f32 ? 4 : 2); }

// 16 elements, or the first `count` of them with zeros for the rest.
template <class V>
SLUICE_INLINE typename V::F load_elements(const char* from, Element type, std::int64_t count = kLanes) {
  if (count < kLanes) {
    alignas(64) char whole[kLanes * 4] = {};
    std::memcpy(whole, from, static_cast<std::size_t>(bytes_of(type, count)));
    return load_elements<V>(whole, type);
  }
  return type == Element::f32 ? V::load(reinterpret_cast<const float*>(from)) : V::load_bf16(from);
}

template <class V>
SLUICE_INLINE void store_elements(char* to, Element type, typename V::F value, std::int64_t count = kLanes) {
  if (count < kLanes) {
    alignas(64) char whole[kLanes * 4];
    store_elements<V>(whole, type, value);
    std::memcpy(to, whole, static_cast<std::size_t>(bytes_of(type, count)));
  } else if (type == Element::f32) {
    V::store(reinterpret_cast<float*>(to), value);
  } else {
    V::store_bf16(to, value);
  }
}

}  // namespace
}  // namespace sluice::cpu
