// The policy of ops_dot.h for processors with a bf16 dot product. The query stays bf16, two columns a broadcast.
// The instruction treats subnormal inputs and sums as zero.
#pragma once

#include <cstdint>

#include "cpu/isa/ops_dot.h"

namespace sluice::cpu {
namespace {

struct DotBf16Native {
  static constexpr int kColumnsPerLine = 2;
  // `out` holds dims bf16 in the first half of the row.
  static void pack(const float* query, int head_dim, int dims, float* out) {
    auto* rounded = reinterpret_cast<std::uint16_t*>(out);
    for (int c = 0; c < dims; c += 16) {
      store_bf16(rounded + c, c < head_dim ? load_some(query + c, DotF32::min_int(16, head_dim - c)) : zero());
    }
  }

  struct Line {
    __m512bh keys;
    explicit Line(const void* p) : keys((__m512bh)_mm512_loadu_si512(p)) {}
    V step(V acc, const float* query, int line) const {
      return {_mm512_dpbf16_ps(acc.v, keys, (__m512bh)_mm512_castps_si512(_mm512_set1_ps(query[line])))};
    }
  };
};

}  // namespace
}  // namespace sluice::cpu
