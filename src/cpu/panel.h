// Weights packed for the GEMM kernels: panels of 16 output rows, two panels (a pair) interleaved in one stream of
// records (cpu/isa/gemm_kernels.h has the byte order). Rows are filled up to a whole pair and K to an even number, with
// zeros.
//
// Called at load time by the runner and by dense weights. The memory belongs to the caller; pairs may be packed in
// parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/isa/gemm_kernels.h"
#include "moe/weights.h"

namespace sluice::cpu {

constexpr std::int64_t element_bytes(Element e) { return e == Element::f32 ? 4 : 2; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct PanelLayout {
  std::int64_t pairs = 0;
  std::int64_t cols = 0;  // K
  Element element = Element::bf16;

  std::int64_t k_pairs() const { return ceil_div(cols, 2); }
  std::int64_t segments() const { return ceil_div(cols, kSegmentK); }
  std::int64_t pair_bytes() const { return k_pairs() * 2 * kPairRows * element_bytes(element); }
  std::int64_t segment_bytes() const { return kSegmentK * kPairRows * element_bytes(element); }  // of a whole segment
  std::int64_t bytes() const { return pairs * pair_bytes(); }
};

// The 16 rows of `weight` from `first_row` on; rows beyond its end are zeros.
struct PanelSource {
  const QuantTensor* weight = nullptr;
  std::int64_t first_row = 0;
};

// Floats of scratch that pack_panel needs for rows of K elements.
constexpr std::int64_t pack_scratch_floats(std::int64_t cols) { return kPanelRows * cols; }

// Writes panel 0 or 1 of the pair at `pair`. bf16 rows without scales are copied, everything else goes through
// decode_row and is rounded once to the element. Cost: reads the 16 rows once (a transposed file: 16 times, from
// cache).
void pack_panel(const PanelLayout& layout, const PanelSource& source, int panel, float* scratch, std::byte* pair);

}  // namespace sluice::cpu
