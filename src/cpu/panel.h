// Weights packed for the GEMM kernels: panels of 16 output rows, two panels (a pair) interleaved in one stream of
// records, in the format that the file has or in bf16 or f32 (cpu/isa/gemm_kernels.h has the byte order). Rows are
// filled up to a whole pair and K to whole records, with zeros.
//
// Called at load time by the runner and by dense weights. The memory belongs to the caller; pairs may be packed in
// parallel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/rounding.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/line_kernels.h"
#include "moe/recipe.h"
#include "moe/weights.h"

namespace sluice::cpu {

constexpr std::int64_t element_bytes(Element e) { return e == Element::f32 ? 4 : 2; }

// Stored format of a recipe's weights; f32 weights may be kept in bf16 when they come so.
Format stored_format(Recipe recipe);

// A segment among the records of a pair (gemm_kernels.h).
struct StoredPlace {
  std::int64_t bytes = 0;  // of the records, from the start of the pair
  int lanes = 1;
  int lane = 0;
};

struct PanelLayout {
  std::int64_t pairs = 0;
  std::int64_t cols = 0;  // K
  Format format = Format::bf16;
  bool scaled = false;  // a weight scale for every panel and kScaledK (fp8-block)

  bool near_scales = false;  // mxfp4: scales_are_near() of every weight

  bool quantized() const { return format != Format::bf16 && format != Format::f32; }
  std::int64_t k_pairs() const { return ceil_div(cols, 2); }
  std::int64_t segment_k() const { return scaled ? kScaledK : kSegmentK; }
  std::int64_t scale_groups() const { return scaled ? ceil_div(cols, kScaledK) : 0; }
  // A k of a pair: 32 elements and their scales. 64 k of it are whole bytes in every format.
  std::int64_t bytes_of_k(std::int64_t k) const;
  std::int64_t pair_bytes() const {
    return bytes_of_k(quantized() ? ceil_div(cols, kStoredK) * kStoredK : 2 * k_pairs());
  }
  std::int64_t segment_bytes() const { return bytes_of_k(kSegmentK); }  // of kSegmentK
  // Where the segment that begins at k is stored, from the start of a pair.
  StoredPlace place(std::int64_t k) const;
  std::int64_t bytes() const { return pairs * pair_bytes(); }
};

// The 16 rows of `weight` from `first_row` on; rows beyond its end are zeros.
struct PanelSource {
  const QuantTensor* weight = nullptr;
  std::int64_t first_row = 0;
  float tensor_scale = 1.0f;  // not always weight->tensor_scale (Problem::upstream_gate_alpha)
};

// A packed pair. What a format has no use for is nullptr.
struct PairData {
  std::byte* records = nullptr;
  float* block_scales = nullptr;   // [scale_groups][2 panels]
  float* output_scales = nullptr;  // [32] tensor scale times row scale; NaN for a row with a NaN among its block scales
  // mxfp4: set where scales_are_near() has to look for itself, which is seldom. Not set: the scales are near.
  std::atomic<bool>* perhaps_far = nullptr;
};

// What packing works with on one thread.
struct PackTools {
  const LineKernels& lines;
  float* scratch = nullptr;  // [pack_scratch_floats]
};

// Floats of scratch that pack_pair needs for rows of K elements.
constexpr std::int64_t pack_scratch_floats(std::int64_t cols) { return kPanelRows * cols; }

// Writes a pair, whose records are zeros or were packed before; finish_lines() after the last of a thread. Quantised
// formats are copied code by code; bf16 rows without scales are copied, and everything else goes through decode_row and
// is rounded once. Cost: reads the 16 rows once (a transposed file: 16 times, from cache). Throws Error(unsupported)
// for block scales that the layout cannot hold.
void pack_pair(const PanelLayout& layout, const PanelSource (&sources)[2], const PackTools& tools,
               const PairData& pair);

// Whether the MXFP4 scales of all blocks that are not zero lie between 2^-40 and 2^40. Then sums may be kept in units
// of the scale of a block without leaving the range of f32, for inputs between 2^-80 and 2^80. Cost: reads the scales.
bool scales_are_near(const QuantTensor& weight);

// For quantised layouts.
void pack_quantized_pair(const PanelLayout& layout, const PanelSource (&sources)[2], const LineKernels& lines,
                         const PairData& pair);

}  // namespace sluice::cpu
