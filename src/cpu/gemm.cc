#include "cpu/gemm.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "moe/recipe.h"

namespace sluice::cpu {
namespace {

// Lines that each block fetches in an unrolled step (4 k pairs, 8 lines of bf16 weights), so that all blocks together
// fetch one segment ahead, into the L2 cache. With few rows the loop is one sequential stream that the hardware fetches
// better by itself; with many, memory would be idle while later blocks compute on what the first one has read.
// Measured (docs/performance-cpu.md): 16 % at 16 rows an expert, -15 % at 4.
int prefetch_lines(const BlockSplit& split) {
  constexpr std::int64_t kLeastRows = 8;
  constexpr std::int64_t kLinesOfStep = 8;
  return split.rows < kLeastRows ? 0 : static_cast<int>(ceil_div(kLinesOfStep, split.blocks));
}

}  // namespace

const GemmKernels& gemm_kernels(Isa isa) {
  const std::int32_t segment = recipe_info(Recipe::bf16).segment_k;
  if (segment != kSegmentK || recipe_info(Recipe::f32).segment_k != kSegmentK) {
    fail(ErrorCode::unsupported, "the recipes sum in segments of " + std::to_string(segment),
         std::to_string(kSegmentK) + ", which the CPU kernels are built for");
  }
  switch (isa) {
    case Isa::scalar:
      return gemm_scalar();
    case Isa::avx2:
      return gemm_avx2();
    case Isa::avx512:
      return gemm_avx512();
    case Isa::avx512_bf16:
      return gemm_avx512_bf16();
  }
  fail(ErrorCode::unsupported, "unknown instruction set");
}

void pack_rows(const GemmKernels& kernels, const PackArgs& args, std::int64_t rows, const PackedRows& packed) {
  const BlockSplit split(rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    PackArgs block = args;
    const std::int64_t first = split.first(b);
    block.tokens = split.tokens(b);
    block.to = packed.element;
    block.block = packed.block(split, b);
    if (args.scale != nullptr) block.scale = args.scale + first;
    if (args.rows != nullptr) {
      block.rows = args.rows + first;
    } else {
      block.x = static_cast<const std::byte*>(args.x) + first * args.row_stride * element_bytes(args.from);
    }
    kernels.pack(block);
  }
}

void multiply_pair(const GemmKernel* kernels, const PanelLayout& layout, const std::byte* pair, const PackedRows& x,
                   Totals& totals) {
  const BlockSplit split(x.rows);
  const std::int64_t segment_elements = kSegmentK * element_bytes(x.element);
  GemmSegment g;
  g.prefetch_lines = prefetch_lines(split);
  const std::int64_t slice = kSegmentK / 8 * g.prefetch_lines * 64;  // bytes that one block fetches
  for (std::int64_t s = 0; s < layout.segments(); ++s) {
    g.weights = pair + s * layout.segment_bytes();
    g.k_pairs = std::min<std::int64_t>(layout.k_pairs() - s * kSegmentK / 2, kSegmentK / 2);
    g.first = s == 0;
    for (std::int64_t b = 0; b < split.blocks; ++b) {
      const int tokens = split.tokens(b);
      g.x = x.block(split, b) + s * tokens * segment_elements;
      g.totals = totals.block(split, b);
      g.prefetch = pair + std::min((s + 1) * layout.segment_bytes(), layout.pair_bytes()) + b * slice;
      kernels[tokens](g);
    }
  }
}

}  // namespace sluice::cpu
