#include "cpu/runner_steps.h"

#include <algorithm>
#include <cstring>

namespace sluice::cpu {
namespace {

void zero_row(const TensorView& out, std::int64_t row) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(out.dtype, out.cols));
  std::memset(static_cast<std::byte*>(out.data) + dtype_bytes(out.dtype, row * out.row_stride), 0, bytes);
}

Element element_of(DType type) { return type == DType::bf16 ? Element::bf16 : Element::f32; }

}  // namespace

// Small pieces balance the threads, which may lose their processor to others at any time; but every worker that takes a
// piece of a chunk packs the chunk's rows, at about the cost of half a pair.
void RunSteps::for_each_piece(std::int64_t pairs,
                              FunctionRef<void(std::int64_t, std::int64_t, std::int64_t, WorkerScratch&)> body) const {
  constexpr std::int64_t kPiecesOfWorker = 48;
  constexpr std::int64_t kLeastPairs = 4;
  const std::int64_t grain = piece_pairs(plan.chunk_count, pairs, pool.size() * kPiecesOfWorker, kLeastPairs);
  const std::int64_t pieces = ceil_div(pairs, grain);
  pool.parallel_for(plan.chunk_count * pieces, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % pieces * grain;
      body(i / pieces, first, std::min(first + grain, pairs), plan.workers[worker]);
    }
  });
}

PackedRows RunSteps::input_rows(std::int64_t chunk, WorkerScratch& scratch) const {
  const Chunk& c = plan.chunks[chunk];
  const PackedRows packed{scratch.x, kernels.bf16_x, c.rows, width()};
  if (scratch.packed_chunk == chunk) return packed;
  scratch.packed_chunk = chunk;
  const std::int64_t* routes = plan.sorted.routes + c.first_row;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    scratch.tokens[i] = routes[i] / args.top_k;
    scratch.scales[i] = args.weights[routes[i]];
  }
  PackArgs pack;
  pack.x = args.hidden.data;
  pack.from = Element::bf16;
  pack.row_stride = args.hidden.row_stride;
  pack.rows = scratch.tokens;
  pack.scale = experts.layer.weight_on_input ? scratch.scales : nullptr;
  pack.cols = width();
  pack_rows(kernels, pack, c.rows, packed);
  return packed;
}

PackedRows RunSteps::intermediate_rows(const Chunk& chunk) const {
  std::byte* data = plan.intermediate + chunk.first_row * packed_row_bytes(intermediate(), kernels.bf16_x);
  return {data, kernels.bf16_x, chunk.rows, intermediate()};
}

void RunSteps::gemm1() const {
  for_each_piece(experts.gemm1.pairs,
                 [&](std::int64_t chunk, std::int64_t first, std::int64_t last, WorkerScratch& scratch) {
                   const PackedRows x = input_rows(chunk, scratch);
                   for (std::int64_t pair = first; pair < last; ++pair) gemm1_pair(plan.chunks[chunk], pair, x);
                 });
}

void RunSteps::gemm1_pair(const Chunk& chunk, std::int64_t pair, const PackedRows& x) const {
  Totals totals;
  multiply_pair(kernels.bf16, experts.gemm1, experts.gemm1_pair(chunk.expert, pair), x, totals);
  const PackedRows rows = intermediate_rows(chunk);
  const std::int64_t column = pair * experts.gemm1_columns();
  ActivateArgs a;
  a.numbers = experts.numbers;
  a.bias = experts.gemm1_bias(chunk.expert, pair);
  a.columns = static_cast<int>(std::min(experts.gemm1_columns(), intermediate() - column));
  a.gated = experts.gated();
  a.to = kernels.bf16_x;
  const BlockSplit split(chunk.rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    a.tokens = split.tokens(b);
    a.totals = totals.block(split, b);
    const std::int64_t segment = column / kSegmentK * a.tokens * kSegmentK;
    a.block = rows.block(split, b) + (segment + column % kSegmentK) * element_bytes(a.to);
    kernels.activate(a);
  }
}

void RunSteps::gemm2() const {
  for_each_piece(experts.gemm2.pairs, [&](std::int64_t chunk, std::int64_t first, std::int64_t last, WorkerScratch&) {
    const PackedRows x = intermediate_rows(plan.chunks[chunk]);
    for (std::int64_t pair = first; pair < last; ++pair) gemm2_pair(plan.chunks[chunk], pair, x);
  });
}

void RunSteps::gemm2_pair(const Chunk& chunk, std::int64_t pair, const PackedRows& x) const {
  const std::int64_t column = pair * kPairRows;
  StoreArgs s;
  s.bias = experts.gemm2_bias(chunk.expert, pair);
  s.columns = static_cast<int>(std::min<std::int64_t>(kPairRows, width() - column));
  s.to = args.sum ? Element::bf16 : element_of(args.routes.dtype);
  s.round_bf16 = true;
  s.row_stride = args.sum ? width() : args.routes.row_stride;
  auto* y = static_cast<std::byte*>(args.sum ? plan.slot_rows : args.routes.data) + column * element_bytes(s.to);
  s.y = y;
  // Rows are far apart and not in any cache: their lines arrive while the product is computed (5 % of this step).
  const std::int64_t* routes = plan.sorted.routes + chunk.first_row;
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    __builtin_prefetch(y + routes[i] * s.row_stride * element_bytes(s.to), 1, 2);
  }
  Totals totals;
  multiply_pair(kernels.bf16, experts.gemm2, experts.gemm2_pair(chunk.expert, pair), x, totals);
  const BlockSplit split(chunk.rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    s.tokens = split.tokens(b);
    s.totals = totals.block(split, b);
    s.rows = routes + split.first(b);
    kernels.store(s);
  }
}

void RunSteps::combine() const {
  constexpr std::int64_t kGrainTokens = 8;
  pool.parallel_for(valid_tokens, kGrainTokens, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t t = begin; t < end; ++t) combine_token(t, plan.workers[worker]);
  });
}

void RunSteps::combine_token(std::int64_t t, WorkerScratch& scratch) const {
  CombineArgs c;
  for (std::int64_t r = t * args.top_k; r < (t + 1) * args.top_k; ++r) {
    if (!args.slots.contains(args.ids[r])) continue;
    scratch.slot_rows[c.slots] = plan.slot_rows + r * width();
    scratch.slot_weights[c.slots++] = experts.layer.weight_on_input ? 1.0f : args.weights[r];
  }
  c.rows = scratch.slot_rows;
  c.weights = scratch.slot_weights;
  c.columns = width();
  c.to = element_of(args.sum.dtype);
  c.out = static_cast<std::byte*>(args.sum.data) + t * args.sum.row_stride * element_bytes(c.to);
  kernels.combine(c);
}

void RunSteps::zero_skipped_routes() const {
  for (std::int64_t r = 0; r < valid_tokens * args.top_k; ++r) {
    if (!args.slots.contains(args.ids[r])) zero_row(args.routes, r);
  }
}

void RunSteps::zero_padding() const {
  const TensorView& out = args.sum ? args.sum : args.routes;
  for (std::int64_t r = args.sum ? valid_tokens : valid_tokens * args.top_k; r < out.rows; ++r) zero_row(out, r);
}

}  // namespace sluice::cpu
