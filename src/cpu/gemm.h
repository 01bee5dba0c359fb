// Drives the GEMM kernels over one pair of panels for a chunk of input rows, and names the limits that callers plan
// with.
//
// Called by the runner and by dense projections, from the workers of the thread pool. No state, no allocation:
// thread-safe. How rows are cut into chunks and blocks, and which thread works on what, never changes a bit of a
// result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/function_ref.h"
#include "cpu/features.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/panel.h"

namespace sluice::cpu {

// Kernels of an instruction set that supports() has confirmed.
const GemmKernels& gemm_kernels(Isa isa);

// Rows that are worked on together: their inputs stay in the L2 cache while weights stream past, and their totals (12
// KiB) on the stack.
inline constexpr std::int64_t kChunkRows = 96;

// Cuts 1 to kChunkRows rows into blocks of at most kBlockTokens whose sizes differ by at most one.
struct BlockSplit {
  explicit BlockSplit(std::int64_t rows_) : rows(rows_), blocks(ceil_div(rows_, kBlockTokens)) {}
  std::int64_t first(std::int64_t b) const { return b * (rows / blocks) + (b < rows % blocks ? b : rows % blocks); }
  int tokens(std::int64_t b) const { return static_cast<int>(first(b + 1) - first(b)); }
  std::int64_t rows;
  std::int64_t blocks;
};

// Bytes of one packed input row of K elements: whole segments.
constexpr std::int64_t packed_row_bytes(std::int64_t cols, Element element) {
  return ceil_div(cols, kSegmentK) * kSegmentK * element_bytes(element);
}

// A packed pair and, where the layout is scaled, its scales [groups][2 panels].
struct PackedPair {
  const std::byte* records = nullptr;
  const float* block_scales = nullptr;
};

// Input rows of a chunk, packed block after block; block b starts at data + first(b) * packed_row_bytes.
struct PackedRows {
  std::byte* data = nullptr;
  Element element = Element::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* scales = nullptr;  // scaled layouts: [rows][ceil(cols / kScaledK)]; else the scale of each row

  std::byte* block(const BlockSplit& split, std::int64_t b) const {
    return data + split.first(b) * packed_row_bytes(cols, element);
  }
};

// Packs all rows of a chunk; `args` names source, row numbers and scales of the whole chunk.
void pack_rows(const GemmKernels& kernels, const PackArgs& args, std::int64_t rows, const PackedRows& packed);

// Outputs of one pair for the rows of a chunk, before output scales and bias: [2 panels][tokens of block b][16] for
// each block b.
struct PairTotals {
  const float* values = nullptr;
  const float* block(const BlockSplit& split, std::int64_t b) const { return values + split.first(b) * kPairRows; }
};

// Neighbouring pairs of a weight. x in f32 asks for the f32 recipe only where the layout holds f32 or bf16 and
// `f32_products` is set; quantised layouts have bf16 products.
struct PairRange {
  const PanelLayout& layout;
  PackedPair first_pair;  // pair number `first`; the others follow it
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool f32_products = false;
};

// Calls finish(pair, totals) for each pair of the range, in order. With few rows the outputs of several pairs are
// finished together: memory is idle meanwhile, and those of one pair are one long chain of latencies.
void multiply_pairs(const GemmKernels& kernels, const PairRange& pairs, const PackedRows& x,
                    FunctionRef<void(std::int64_t pair, const PairTotals& totals)> finish);

}  // namespace sluice::cpu
