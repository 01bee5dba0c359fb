#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cpu/runner_steps.h"
#include "moe/stages.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
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

// One row of what a product reads, as it is dumped.
struct DumpedRow {
  std::vector<float> values;               // with all scales
  std::vector<std::uint8_t> codes;         // e4m3, or e2m1 two a byte
  std::vector<std::uint8_t> block_scales;  // e4m3 or e8m0
  std::vector<float> sum_scales;
};

std::uint8_t fp4_code(float operand, float scale) { return to_e2m1(scale == 0.0f ? operand : operand / scale).bits; }

// Codes of block formats: the operands say what they are once the block scales are known.
void add_block_codes(const std::vector<float>& operands, const std::vector<float>& scales, bool nvfp4, DumpedRow& row) {
  for (const float s : scales) row.block_scales.push_back(nvfp4 ? to_e4m3(s).bits : to_e8m0_floor(s).bits);
  const std::size_t block = nvfp4 ? 16 : 32;
  if (nvfp4) row.codes.assign((operands.size() + 1) / 2, 0);
  for (std::size_t c = 0; c < operands.size(); ++c) {
    const float scale = scales[c / block];
    if (!nvfp4) {
      row.codes.push_back(to_e4m3(operands[c] / scale).bits);
    } else if (!std::isnan(scale)) {
      row.codes[c / 2] = static_cast<std::uint8_t>(row.codes[c / 2] | fp4_code(operands[c], scale) << (c % 2 * 4));
    }
  }
}

// The block scales of a row, which the run does not keep: it is quantised again.
std::vector<float> block_scales_of(const GemmKernels& kernels, const InputRounding& rounding, InputRow row) {
  std::vector<float> operands(static_cast<std::size_t>(ceil_div(row.cols, kSegmentK) * kSegmentK));
  std::vector<float> blocks(static_cast<std::size_t>(ceil_div(row.cols, rounding.block_columns())));
  row.block_scales = blocks.data();
  quantize_row(kernels, rounding, row, operands.data(), Element::f32);
  return blocks;
}

// From the operands and scales of the run.
DumpedRow dump_row(const InputRounding& rounding, const std::vector<float>& operands, std::vector<float> sum_scales,
                   const std::vector<float>& block_scales) {
  DumpedRow out{operands, {}, {}, std::move(sum_scales)};
  const bool nvfp4 = rounding.rounding == Rounding::nvfp4;
  if (nvfp4) out.sum_scales = {rounding.output_factor};
  for (std::size_t c = 0; c < operands.size() && !out.sum_scales.empty(); ++c) {
    out.values[c] *= out.sum_scales[rounding.group_scales ? c / kScaledK : 0];
  }
  if (rounding.block_columns() > 0) {
    add_block_codes(operands, block_scales, nvfp4, out);
  } else {
    for (const float v : operands) out.codes.push_back(to_e4m3(v).bits);
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
void store_panel(const GemmKernels& kernels, const PairTotals& totals, const Epilogue& epilogue, std::int64_t rows,
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
  const PairRange all{experts.gemm1, experts.gemm1_pair(chunk.expert, 0), 0, experts.gemm1.pairs};
  multiply_pairs(run.kernels, all, x, [&](std::int64_t pair, const PairTotals& totals) {
    Epilogue epilogue = experts.gemm1_epilogue(chunk.expert, pair);
    if (experts.input1.token_scales) epilogue.token_scale = x.scales;
    const std::int64_t column = pair * experts.gemm1_columns();
    float* first = experts.gated() ? out.gate.data() : out.up.data();
    store_panel(run.kernels, totals, epilogue, chunk.rows, {0, first, column, cols});
    const std::int64_t second_column = experts.gated() ? column : column + kPanelRows;
    store_panel(run.kernels, totals, epilogue, chunk.rows, {1, out.up.data(), second_column, cols});
  });
  return out;
}

}  // namespace

void RunSteps::record_stages() const {
  for (std::int64_t i = 0; i < plan.chunk_count; ++i) record_chunk(plan.chunks[i], i, plan.workers[0]);
}

void RunSteps::record_operands(std::string_view name, const Chunk& chunk, const PackedRows& packed,
                               const InputRounding& rounding, FunctionRef<InputRow(std::int64_t)> source) const {
  const std::int64_t* routes = plan.sorted.routes + chunk.first_row;
  const std::vector<float> operands = unpack(packed);
  if (!rounding.quantized) {
    return args.stages->record(name, dense_view(operands.data(), DType::f32, packed.rows, packed.cols), routes);
  }
  const auto record = [&](std::string_view suffix, const void* data, DType type, std::size_t count, std::int64_t i) {
    if (count == 0) return;
    const std::string full = std::string(name) + std::string(suffix);
    args.stages->record(full, dense_view(data, type, 1, static_cast<std::int64_t>(count)), routes + i);
  };
  const std::int64_t scales = rounding.scales_of_row(packed.cols);
  for (std::int64_t i = 0; i < packed.rows; ++i) {
    const auto first = operands.begin() + i * packed.cols;
    std::vector<float> blocks;
    if (rounding.block_columns() > 0) blocks = block_scales_of(kernels, rounding, source(i));
    const DumpedRow row = dump_row(rounding, {first, first + packed.cols},
                                   {packed.scales + i * scales, packed.scales + (i + 1) * scales}, blocks);
    record("", row.values.data(), DType::f32, row.values.size(), i);
    record(stage::kCodes, row.codes.data(), DType::u8, row.codes.size(), i);
    record(stage::kBlockScales, row.block_scales.data(), DType::u8, row.block_scales.size(), i);
    record(stage::kSumScales, row.sum_scales.data(), DType::f32, row.sum_scales.size(), i);
  }
}

void RunSteps::record_chunk(const Chunk& chunk, std::int64_t index, WorkerScratch& scratch) const {
  const std::int64_t* routes = plan.sorted.routes + chunk.first_row;
  const auto record = [&](std::string_view name, const std::vector<float>& rows, std::int64_t cols) {
    args.stages->record(name, dense_view(rows.data(), DType::f32, chunk.rows, cols), routes);
  };
  const PackedRows x = input_rows(index, scratch);
  record_operands(stage::kGemm1Input, chunk, x, experts.input1,
                  [&](std::int64_t i) { return hidden_row(routes[i] / args.top_k); });
  const Gemm1Rows gemm1_rows = accumulators(*this, chunk, x);
  if (experts.gated()) record(stage::kGate, gemm1_rows.gate, intermediate());
  record(stage::kUp, gemm1_rows.up, intermediate());
  record_operands(stage::kIntermediate, chunk, intermediate_rows(chunk), experts.input2,
                  [&](std::int64_t i) { return activated_row(chunk.first_row + i); });

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
