#include <algorithm>
#include <vector>

#include "cpu/runner_steps.h"
#include "moe/stages.h"

// Recording of intermediates for --dump-stages: slow, allocates, and uses the same kernels as the run itself, so that
// what is dumped has the bits of what was computed.
namespace sluice::cpu {
namespace {

// Rows of a packed chunk, as [rows, cols] f32.
std::vector<float> unpack(const PackedRows& packed) {
  std::vector<float> rows(static_cast<std::size_t>(packed.rows * packed.cols));
  const BlockSplit split(packed.rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    const std::byte* block = packed.block(split, b);
    const std::int64_t tokens = split.tokens(b);
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* row = rows.data() + (split.first(b) + t) * packed.cols;
      for (std::int64_t c = 0; c < packed.cols; ++c) {
        const std::int64_t i = (c / kSegmentK * tokens + t) * kSegmentK + c % kSegmentK;
        const bool f32 = packed.element == Element::f32;
        row[c] = f32 ? reinterpret_cast<const float*>(block)[i] : to_float(reinterpret_cast<const Bf16*>(block)[i]);
      }
    }
  }
  return rows;
}

// Accumulators of a chunk, [rows, I] each.
struct Gemm1Rows {
  std::vector<float> gate;
  std::vector<float> up;
};

struct PanelTarget {
  int panel = 0;
  float* rows = nullptr;  // [rows, cols]
  std::int64_t column = 0;
  std::int64_t cols = 0;
};

// One panel of a pair's totals, with bias.
void store_panel(const GemmKernels& kernels, Totals& totals, const float* bias, std::int64_t rows,
                 const PanelTarget& target) {
  if (target.column >= target.cols) return;
  StoreArgs s;
  s.bias = bias != nullptr ? bias + target.panel * kPanelRows : nullptr;
  s.columns = static_cast<int>(std::min<std::int64_t>(kPanelRows, target.cols - target.column));
  s.to = Element::f32;
  s.row_stride = target.cols;
  const BlockSplit split(rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    s.tokens = split.tokens(b);
    s.totals = totals.block(split, b) + target.panel * s.tokens * kPanelRows;
    s.y = target.rows + split.first(b) * target.cols + target.column;
    kernels.store(s);
  }
}

Gemm1Rows accumulators(const RunSteps& run, const Chunk& chunk, const PackedRows& x) {
  const CpuExperts& experts = run.experts;
  const std::int64_t cols = experts.layer.intermediate;
  const auto size = static_cast<std::size_t>(chunk.rows * cols);
  Gemm1Rows out{std::vector<float>(size), std::vector<float>(size)};
  for (std::int64_t pair = 0; pair < experts.gemm1.pairs; ++pair) {
    Totals totals;
    multiply_pair(run.kernels.bf16, experts.gemm1, experts.gemm1_pair(chunk.expert, pair), x, totals);
    const float* bias = experts.gemm1_bias(chunk.expert, pair);
    const std::int64_t column = pair * experts.gemm1_columns();
    float* first = experts.gated() ? out.gate.data() : out.up.data();
    store_panel(run.kernels, totals, bias, chunk.rows, {0, first, column, cols});
    const std::int64_t second_column = experts.gated() ? column : column + kPanelRows;
    store_panel(run.kernels, totals, bias, chunk.rows, {1, out.up.data(), second_column, cols});
  }
  return out;
}

}  // namespace

void RunSteps::record_stages() const {
  for (std::int64_t i = 0; i < plan.chunk_count; ++i) record_chunk(plan.chunks[i], i, plan.workers[0]);
}

void RunSteps::record_chunk(const Chunk& chunk, std::int64_t index, WorkerScratch& scratch) const {
  const std::int64_t* routes = plan.sorted.routes + chunk.first_row;
  const auto record = [&](std::string_view name, const std::vector<float>& rows, std::int64_t cols) {
    args.stages->record(name, dense_view(rows.data(), DType::f32, chunk.rows, cols), routes);
  };
  const PackedRows x = input_rows(index, scratch);
  record(stage::kGemm1Input, unpack(x), width());
  const Gemm1Rows gemm1_rows = accumulators(*this, chunk, x);
  if (experts.gated()) record(stage::kGate, gemm1_rows.gate, intermediate());
  record(stage::kUp, gemm1_rows.up, intermediate());
  record(stage::kIntermediate, unpack(intermediate_rows(chunk)), intermediate());

  std::vector<float> slot_rows(static_cast<std::size_t>(chunk.rows * width()));
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    for (std::int64_t c = 0; c < width(); ++c) {
      float& to = slot_rows[static_cast<std::size_t>(i * width() + c)];
      if (args.sum) {
        to = to_float(plan.slot_rows[routes[i] * width() + c]);
      } else if (args.routes.dtype == DType::f32) {
        to = args.routes.row<float>(routes[i])[c];
      } else {
        to = to_float(args.routes.row<Bf16>(routes[i])[c]);
      }
    }
  }
  record(stage::kSlotRows, slot_rows, width());
}

}  // namespace sluice::cpu
