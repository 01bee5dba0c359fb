#include "cpu/gemm.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "moe/recipe.h"

namespace sluice::cpu {
namespace {

// Products of a pair with the rows of a chunk, segment by segment, blocks inside.
struct PairProduct {
  const PanelLayout& layout;
  const PackedPair& pair;
  const PackedRows& x;
  float* totals;
  BlockSplit split{x.rows};

  std::int64_t k_step() const { return layout.segment_k(); }
  const std::byte* end() const { return pair.records + layout.pair_bytes(); }

  // Block b of the inputs from k on.
  const std::byte* input(std::int64_t b, std::int64_t k) const {
    const std::int64_t tokens = split.tokens(b);
    return x.block(split, b) + (k / kSegmentK * tokens * kSegmentK + k % kSegmentK) * element_bytes(x.element);
  }

  // Everything of block b from k on except the weights.
  GemmSegment segment(std::int64_t b, std::int64_t k) const {
    GemmSegment g;
    g.x = input(b, k);
    g.k_pairs = std::min<std::int64_t>(layout.k_pairs() - k / 2, k_step() / 2);
    g.totals = totals + split.first(b) * kPairRows;
    g.first = k == 0;
    if (!layout.scaled) return g;
    const std::int64_t groups = layout.scale_groups(), group = k / kScaledK;
    g.x_scale = x.scales + split.first(b) * groups + group;
    g.x_scale_stride = groups;
    g.w_scale = pair.block_scales + 2 * group;
    return g;
  }
};

// Lines that each of `shares` kernel calls fetches in an unrolled step (4 k pairs), so that together they fetch one
// segment ahead, into the L2 cache. With few rows the loop is one sequential stream that the hardware fetches better by
// itself; with many, memory would be idle while later blocks compute on what the first one has read. Measured
// (docs/performance-cpu.md): 16 % at 16 rows an expert, -15 % at 4.
std::int64_t prefetch_lines(const PairProduct& p, std::int64_t shares) {
  constexpr std::int64_t kLeastRows = 8;
  const std::int64_t steps = p.k_step() / 8;
  return p.x.rows < kLeastRows ? 0 : ceil_div(ceil_div(p.layout.bytes_of_k(p.k_step()), 64), steps * shares);
}

void multiply_plain(const GemmKernel* kernels, const PairProduct& p) {
  const std::int64_t lines = prefetch_lines(p, p.split.blocks);
  for (std::int64_t k = 0; k < p.layout.cols; k += kSegmentK) {
    const std::byte* weights = p.pair.records + p.layout.bytes_of_k(k);
    for (std::int64_t b = 0; b < p.split.blocks; ++b) {
      GemmSegment g = p.segment(b, k);
      g.weights = weights;
      g.prefetch_lines = static_cast<int>(lines);
      g.prefetch = std::min(weights + p.layout.segment_bytes(), p.end()) + b * kSegmentK / 8 * lines * 64;
      kernels[p.split.tokens(b)](g);
    }
  }
}

using FusedKernels = const GemmKernel (*)[kFusedTokens + 1];

// Kernels that decode weights in registers.
FusedKernels fused_kernels(const GemmKernels& kernels, const PanelLayout& layout) {
  if (layout.scaled) return kernels.fused_scaled;
  if (layout.near_scales && kernels.fused_near[0][1] != nullptr) return kernels.fused_near;
  return kernels.fused[static_cast<int>(layout.format)];
}

// All lanes at once where there is a kernel for it, otherwise one after the other.
void multiply_fused(FusedKernels kernels, const PairProduct& p) {
  std::int64_t k = 0;
  while (k < p.layout.cols) {
    const StoredPlace place = p.layout.place(k);
    GemmSegment g = p.segment(0, k);
    g.weights = p.pair.records + place.bytes;
    g.lanes = place.lanes;
    g.lane = place.lane;
    const GemmKernel all = kernels[place.lanes - 1][p.x.rows];
    (all != nullptr ? all : kernels[0][p.x.rows])(g);
    k += all != nullptr ? place.lanes * p.k_step() : p.k_step();
  }
}

struct alignas(64) DecodedSegment {
  std::byte panels[kSegmentK * kPairRows * 2];
};

// Weights are decoded once a segment for all blocks. A lane fetches its share of what follows all lanes, be it in the
// next pair.
void multiply_decoded(const GemmKernels& kernels, const PairProduct& p) {
  const GemmKernel* multiply = p.layout.scaled ? kernels.bf16_scaled : kernels.bf16;
  const auto decode = kernels.decode[static_cast<int>(p.layout.format)];
  const std::int64_t lines = prefetch_lines(p, p.split.blocks);
  DecodedSegment decoded;
  for (std::int64_t k = 0; k < p.layout.cols; k += p.k_step()) {
    const StoredPlace place = p.layout.place(k);
    const std::byte* records = p.pair.records + place.bytes;
    const std::int64_t k_pairs = std::min<std::int64_t>(p.layout.k_pairs() - k / 2, p.k_step() / 2);
    decode({records, place.lanes, place.lane, k_pairs, decoded.panels});
    const std::int64_t share = p.layout.bytes_of_k(p.k_step());
    const std::byte* ahead = std::min(records + place.lanes * share, p.end()) + place.lane * share;
    for (std::int64_t b = 0; b < p.split.blocks; ++b, ahead += p.k_step() / 8 * lines * 64) {
      GemmSegment g = p.segment(b, k);
      g.weights = decoded.panels;
      g.prefetch_lines = static_cast<int>(lines);
      g.prefetch = ahead;
      multiply[p.split.tokens(b)](g);
    }
  }
}

void multiply_pair(const GemmKernels& kernels, const PairRange& pairs, const PairProduct& product) {
  const PanelLayout& layout = product.layout;
  if (!layout.quantized()) {
    const GemmKernel* f32 = layout.format == Format::f32 ? kernels.f32 : kernels.f32_bf16;
    return multiply_plain(pairs.f32_products ? f32 : kernels.bf16, product);
  }
  const std::int64_t rows = product.x.rows;
  const FusedKernels fused = fused_kernels(kernels, layout);
  if (rows <= kFusedTokens && fused[0][rows] != nullptr) return multiply_fused(fused, product);
  multiply_decoded(kernels, product);
}

PackedPair packed_pair(const PairRange& pairs, std::int64_t pair) {
  PackedPair p = pairs.first_pair;
  p.records += (pair - pairs.first) * pairs.layout.pair_bytes();
  if (pairs.layout.scaled) p.block_scales += (pair - pairs.first) * 2 * pairs.layout.scale_groups();
  return p;
}

// Asks for the first lines of a pair, so that memory is not idle while the outputs of the pair before it are finished.
void fetch_ahead(const PackedPair& pair) {
  constexpr int kLines = 24;  // about as many as a core can wait for
  for (int i = 0; i < kLines; ++i) __builtin_prefetch(pair.records + 64 * i, 0, 3);
}

}  // namespace

const GemmKernels& gemm_kernels(Isa isa) {
  const std::int32_t segment = recipe_info(Recipe::bf16).segment_k;
  if (segment != kSegmentK || recipe_info(Recipe::f32).segment_k != kSegmentK) {
    fail(ErrorCode::unsupported, "the recipes sum in segments of " + std::to_string(segment),
         std::to_string(kSegmentK) + ", which the CPU kernels are built for");
  }
  static_assert(kSegmentK % kScaledK == 0 && kScaledK % kStoredK == 0);
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

void multiply_pairs(const GemmKernels& kernels, const PairRange& pairs, const PackedRows& x,
                    FunctionRef<void(std::int64_t, const PairTotals&)> finish) {
  alignas(64) float totals[kChunkRows * kPairRows];
  const std::int64_t together = x.rows <= kFusedTokens ? kChunkRows / x.rows : 1, floats = x.rows * kPairRows;
  for (std::int64_t begin = pairs.first; begin < pairs.last; begin += together) {
    const std::int64_t end = std::min(begin + together, pairs.last);
    for (std::int64_t pair = begin; pair < end; ++pair) {
      multiply_pair(kernels, pairs, {pairs.layout, packed_pair(pairs, pair), x, totals + (pair - begin) * floats});
    }
    if (together == 1 && end < pairs.layout.pairs) fetch_ahead(packed_pair(pairs, end));
    for (std::int64_t pair = begin; pair < end; ++pair) finish(pair, {totals + (pair - begin) * floats});
  }
}

}  // namespace sluice::cpu
