#include "cpu/runner_steps.h"

#include <algorithm>
#include <cstring>

namespace sluice::cpu {
namespace {

// Output scales and biases of a piece are in no cache either.
void fetch_epilogues(const Epilogue& first, std::int64_t pairs) {
  for (const float* from : {first.output_scale, first.bias}) {
    constexpr std::int64_t kFloatsOfLine = 16;
    for (std::int64_t i = 0; from != nullptr && i < pairs * kPairRows; i += kFloatsOfLine) __builtin_prefetch(from + i);
  }
}

void zero_row(const TensorView& out, std::int64_t row) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(out.dtype, out.cols));
  std::memset(static_cast<std::byte*>(out.data) + dtype_bytes(out.dtype, row * out.row_stride), 0, bytes);
}

constexpr std::int64_t kQuantizedRows = 8;  // of a task

Element element_of(DType type) { return type == DType::bf16 ? Element::bf16 : Element::f32; }

}  // namespace

// Small pieces balance the threads, which may lose their processor to others at any time; but every worker that takes a
// piece of a chunk packs the chunk's rows, at about the cost of half a pair, and with few rows memory is idle at the
// end of every piece, while its outputs are finished.
PieceSplit RunSteps::pieces(std::int64_t pairs) const {
  constexpr std::int64_t kPiecesOfWorker = 48;
  constexpr std::int64_t kLeastPieces = 12;  // of a worker, for pieces of up to kFewPairs
  constexpr std::int64_t kLeastPairs = 4, kFewPairs = 16;
  const std::int64_t least =
      std::clamp(plan.chunk_count * pairs / (pool.size() * kLeastPieces), kLeastPairs, kFewPairs);
  return {plan.chunk_count, pairs, piece_pairs(plan.chunk_count, pairs, pool.size() * kPiecesOfWorker, least)};
}

// A token's row is quantised once, for all experts that it goes to.
void RunSteps::quantize_hidden() const {
  const InputRounding& rounding = experts.input1;
  if (!rounding.quantized) return;
  const std::int64_t pitch = operand_columns(width()), scales = rounding.scales_of_row(width());
  pool.parallel_for(valid_tokens, kQuantizedRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (args.quantized.codes) {
        load_quantized_row(args.quantized, t, width(), plan.operands + t * pitch);
        continue;
      }
      InputRow row = hidden_row(t);
      row.scales = plan.operand_scales + t * scales;
      quantize_row(kernels, rounding, row, plan.operands + t * pitch, Element::bf16);
    }
  });
}

InputRow RunSteps::hidden_row(std::int64_t t) const {
  InputRow row{args.hidden.row<Bf16>(t), Element::bf16, width()};
  if (experts.layer.weight_on_input) row.factor = args.weights + t;  // k = 1
  return row;
}

InputRow RunSteps::activated_row(std::int64_t r) const {
  return {plan.activated + r * activated_columns(), Element::f32, intermediate()};
}

PackedRows RunSteps::input_rows(std::int64_t chunk, WorkerScratch& scratch) const {
  const Chunk& c = plan.chunks[chunk];
  const PackedRows packed{scratch.x, kernels.bf16_x, c.rows, width(), scratch.x_scales};
  if (scratch.packed_chunk == chunk) return packed;
  scratch.packed_chunk = chunk;
  const std::int64_t* routes = plan.sorted.routes + c.first_row;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    scratch.tokens[i] = routes[i] / args.top_k;
    scratch.scales[i] = args.weights[routes[i]];
  }
  const bool quantized = experts.input1.quantized;
  PackArgs pack;
  pack.x = quantized ? plan.operands : args.hidden.data;
  pack.from = Element::bf16;
  pack.row_stride = quantized ? operand_columns(width()) : args.hidden.row_stride;
  pack.rows = scratch.tokens;
  pack.scale = experts.layer.weight_on_input && !quantized ? scratch.scales : nullptr;
  pack.cols = width();
  pack_rows(kernels, pack, c.rows, packed);
  gather_input_scales(c, scratch);
  return packed;
}

void RunSteps::gather_input_scales(const Chunk& chunk, WorkerScratch& scratch) const {
  const std::int64_t count = experts.input1.scales_of_row(width());
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    std::copy_n(plan.operand_scales + scratch.tokens[i] * count, count, scratch.x_scales + i * count);
  }
}

PackedRows RunSteps::intermediate_rows(const Chunk& chunk) const {
  std::byte* data = plan.intermediate + chunk.first_row * packed_row_bytes(intermediate(), kernels.bf16_x);
  const float* scales = plan.intermediate_scales + chunk.first_row * experts.input2.scales_of_row(intermediate());
  return {data, kernels.bf16_x, chunk.rows, intermediate(), scales};
}

void RunSteps::gemm1() const {
  for_each_piece(pool, pieces(experts.gemm1.pairs),
                 [&](std::int64_t index, std::int64_t first, std::int64_t last, int worker) {
                   const Chunk& chunk = plan.chunks[index];
                   const PackedRows x = input_rows(index, plan.workers[worker]);
                   const float* token_scales = experts.input1.token_scales ? x.scales : nullptr;
                   const PairRange range{experts.gemm1, experts.gemm1_pair(chunk.expert, first), first, last};
                   fetch_epilogues(experts.gemm1_epilogue(chunk.expert, first), last - first);
                   multiply_pairs(kernels, range, x, [&](std::int64_t pair, const PairTotals& totals) {
                     activate_pair(chunk, pair, token_scales, totals);
                   });
                 });
}

// Into packed intermediates, or into plain rows of f32 that are quantised when they are whole.
void RunSteps::activate_pair(const Chunk& chunk, std::int64_t pair, const float* token_scales,
                             const PairTotals& totals) const {
  const PackedRows rows = intermediate_rows(chunk);
  const bool quantized = experts.input2.quantized;
  const std::int64_t column = pair * experts.gemm1_columns();
  ActivateArgs a;
  a.numbers = experts.numbers;
  a.epilogue = experts.gemm1_epilogue(chunk.expert, pair);
  a.columns = static_cast<int>(std::min(experts.gemm1_columns(), intermediate() - column));
  a.gated = experts.gated();
  a.to = quantized ? Element::f32 : kernels.bf16_x;
  a.round_out = !quantized || experts.recipe == Recipe::nvfp4_w4a4_cutlass;
  a.row_stride = quantized ? activated_columns() : kSegmentK;
  const std::int64_t filled =
      pair + 1 == experts.gemm1.pairs ? operand_columns(intermediate()) - activated_columns() : 0;
  const BlockSplit split(chunk.rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    a.tokens = split.tokens(b);
    a.totals = totals.block(split, b);
    if (token_scales != nullptr) a.epilogue.token_scale = token_scales + split.first(b);
    if (quantized) {
      a.block = plan.activated + (chunk.first_row + split.first(b)) * a.row_stride + column;
      kernels.activate(a);
      continue;
    }
    const std::int64_t segment = column / kSegmentK * a.tokens * kSegmentK;
    std::byte* block = rows.block(split, b) + (segment + column % kSegmentK) * element_bytes(a.to);
    a.block = block;
    kernels.activate(a);
    for (std::int64_t t = 0; t < a.tokens && filled > 0; ++t) {
      std::memset(block + (t * kSegmentK + experts.gemm1_columns()) * element_bytes(a.to), 0,
                  static_cast<std::size_t>(filled * element_bytes(a.to)));
    }
  }
}

void RunSteps::quantize_activated() const {
  const InputRounding& rounding = experts.input2;
  if (!rounding.quantized) return;
  const std::int64_t scales = rounding.scales_of_row(intermediate());
  pool.parallel_for(plan.chunk_count, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t c = begin; c < end; ++c) {
      const Chunk& chunk = plan.chunks[c];
      const PackedRows packed = intermediate_rows(chunk);
      for (std::int64_t i = 0; i < chunk.rows; ++i) {
        const std::int64_t r = chunk.first_row + i;
        InputRow row = activated_row(r);
        row.scales = plan.intermediate_scales + r * scales;
        quantize_packed_row(kernels, rounding, row, packed, i);
      }
    }
  });
}

void RunSteps::gemm2() const {
  for_each_piece(pool, pieces(experts.gemm2.pairs),
                 [&](std::int64_t index, std::int64_t first, std::int64_t last, int) {
                   const Chunk& chunk = plan.chunks[index];
                   const PackedRows x = intermediate_rows(chunk);
                   const PairRange range{experts.gemm2, experts.gemm2_pair(chunk.expert, first), first, last};
                   // Few rows are stored when the piece is at its end, many pair by pair.
                   const bool at_once = chunk.rows <= kFusedTokens;
                   fetch_epilogues(experts.gemm2_epilogue(chunk.expert, first), last - first);
                   for (std::int64_t pair = first; pair < (at_once ? last : first + 1); ++pair) {
                     fetch_slot_rows(chunk, pair);
                   }
                   multiply_pairs(kernels, range, x, [&](std::int64_t pair, const PairTotals& totals) {
                     store_slot_rows(chunk, pair, x, totals);
                     if (!at_once && pair + 1 < last) fetch_slot_rows(chunk, pair + 1);
                   });
                 });
}

StoreArgs RunSteps::slot_rows(std::int64_t pair) const {
  const std::int64_t column = pair * kPairRows;
  StoreArgs s;
  s.columns = static_cast<int>(std::min<std::int64_t>(kPairRows, width() - column));
  s.to = args.sum ? Element::bf16 : element_of(args.routes.dtype);
  s.round_bf16 = true;
  s.row_stride = args.sum ? width() : args.routes.row_stride;
  s.y = static_cast<std::byte*>(args.sum ? plan.slot_rows : args.routes.data) + column * element_bytes(s.to);
  return s;
}

// Rows are far apart and not in any cache: their lines arrive while the product is computed (5 % of this step).
void RunSteps::fetch_slot_rows(const Chunk& chunk, std::int64_t pair) const {
  const StoreArgs s = slot_rows(pair);
  const auto* y = static_cast<const std::byte*>(s.y);
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    const std::int64_t row = plan.sorted.routes[chunk.first_row + i];
    __builtin_prefetch(y + row * s.row_stride * element_bytes(s.to), 1, 2);
  }
}

void RunSteps::store_slot_rows(const Chunk& chunk, std::int64_t pair, const PackedRows& x,
                               const PairTotals& totals) const {
  StoreArgs s = slot_rows(pair);
  s.epilogue = experts.gemm2_epilogue(chunk.expert, pair);
  const BlockSplit split(chunk.rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    s.tokens = split.tokens(b);
    s.totals = totals.block(split, b);
    s.rows = plan.sorted.routes + chunk.first_row + split.first(b);
    if (experts.input2.token_scales) s.epilogue.token_scale = x.scales + split.first(b);
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
