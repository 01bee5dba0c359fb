#include <algorithm>
#include <string>
#include <vector>

#include "cpu/runner_steps.h"
#include "moe/stages.h"
#include "numerics/fp8.h"

// Recording of intermediates for --dump-stages: slow, allocates, and uses the same kernels as the run itself, so that
// what is dumped has the bits of what was computed.
namespace sluice::cpu {
namespace {

// Rows of a packed chunk, as [rows, cols] f32: operands, before their scales.
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

// What a product reads, as it is dumped.
struct OperandRows {
  std::vector<float> values;        // with all scales
  std::vector<std::uint8_t> codes;  // of fp8
  std::vector<float> scales;        // that act on sums
};

OperandRows operands(const PackedRows& packed, const InputRounding& rounding) {
  OperandRows out{unpack(packed), {}, {}};
  if (!rounding.quantized) return out;
  const std::int64_t scales = rounding.scales_of_row(packed.cols);
  const bool nvfp4 = rounding.rounding == Rounding::nvfp4;
  if (nvfp4) out.scales.assign(static_cast<std::size_t>(packed.rows), rounding.output_factor);
  if (scales > 0) out.scales.assign(packed.scales, packed.scales + packed.rows * scales);
  for (std::int64_t i = 0; i < packed.rows * packed.cols; ++i) {
    float& value = out.values[static_cast<std::size_t>(i)];
    if (scales > 0) out.codes.push_back(to_e4m3(value).bits);
    const std::int64_t group = rounding.group_scales ? i % packed.cols / kScaledK : 0;
    if (scales > 0) value *= packed.scales[i / packed.cols * scales + group];
    if (nvfp4) value *= rounding.output_factor;
  }
  return out;
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

// One panel of a pair's totals, with scales and bias.
void store_panel(const GemmKernels& kernels, Totals& totals, const Epilogue& epilogue, std::int64_t rows,
                 const PanelTarget& target) {
  if (target.column >= target.cols) return;
  StoreArgs s;
  const std::int64_t first = target.panel * kPanelRows;
  s.epilogue = epilogue;
  if (epilogue.bias != nullptr) s.epilogue.bias += first;
  if (epilogue.output_scale != nullptr) s.epilogue.output_scale += first;
  s.columns = static_cast<int>(std::min<std::int64_t>(kPanelRows, target.cols - target.column));
  s.to = Element::f32;
  s.row_stride = target.cols;
  const BlockSplit split(rows);
  for (std::int64_t b = 0; b < split.blocks; ++b) {
    s.tokens = split.tokens(b);
    if (epilogue.token_scale != nullptr) s.epilogue.token_scale = epilogue.token_scale + split.first(b);
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
    multiply_pair(run.kernels, experts.gemm1, experts.gemm1_pair(chunk.expert, pair), x, totals);
    Epilogue epilogue = experts.gemm1_epilogue(chunk.expert, pair);
    if (experts.input1.token_scales) epilogue.token_scale = x.scales;
    const std::int64_t column = pair * experts.gemm1_columns();
    float* first = experts.gated() ? out.gate.data() : out.up.data();
    store_panel(run.kernels, totals, epilogue, chunk.rows, {0, first, column, cols});
    const std::int64_t second_column = experts.gated() ? column : column + kPanelRows;
    store_panel(run.kernels, totals, epilogue, chunk.rows, {1, out.up.data(), second_column, cols});
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
  const auto record_operands = [&](std::string_view name, const PackedRows& packed, const InputRounding& rounding) {
    const OperandRows rows = operands(packed, rounding);
    record(name, rows.values, packed.cols);
    const std::string prefix(name);
    if (!rows.codes.empty()) {
      const ConstTensorView codes = dense_view(rows.codes.data(), DType::u8, chunk.rows, packed.cols);
      args.stages->record(prefix + std::string(stage::kCodes), codes, routes);
    }
    const auto scales = static_cast<std::int64_t>(rows.scales.size()) / chunk.rows;
    if (scales > 0) record(prefix + std::string(stage::kSumScales), rows.scales, scales);
  };
  const PackedRows x = input_rows(index, scratch);
  record_operands(stage::kGemm1Input, x, experts.input1);
  const Gemm1Rows gemm1_rows = accumulators(*this, chunk, x);
  if (experts.gated()) record(stage::kGate, gemm1_rows.gate, intermediate());
  record(stage::kUp, gemm1_rows.up, intermediate());
  record_operands(stage::kIntermediate, intermediate_rows(chunk), experts.input2);

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
