#include "cpu/dense.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "cpu/pieces.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kPiecesOfWorker = 16;
constexpr std::int64_t kRowsOfTask = 8;  // quantised

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "linear: " + what, expected);
}

std::string shape_text(const ConstTensorView& v) {
  return "[" + std::to_string(v.rows) + ", " + std::to_string(v.cols) + "] " + std::string(dtype_name(v.dtype));
}

const PackedDense& check(const LinearArgs& args) {
  const auto* weight = dynamic_cast<const PackedDense*>(args.weight);
  require(weight != nullptr, "the weight was prepared by another backend", "one of this backend's prepare_dense");
  require(args.x.cols == weight->cols && args.x.dtype == weight->compute, "x is " + shape_text(args.x),
          std::to_string(weight->cols) + " columns of " + std::string(dtype_name(weight->compute)));
  require(args.y.rows == args.x.rows && args.y.cols == weight->rows, "y is " + shape_text(args.y),
          "[" + std::to_string(args.x.rows) + ", " + std::to_string(weight->rows) + "]");
  require(args.y.dtype == DType::f32 || args.y.dtype == DType::bf16, "y is " + shape_text(args.y), "f32 or bf16");
  require(!args.accumulate || args.y.dtype == DType::f32, "y to add to is " + shape_text(args.y), "f32");
  return *weight;
}

// Everything one call works on.
struct Linear {
  const GemmKernels& kernels;
  const LinearArgs& args;
  const PackedDense& weight;
  std::byte* packed;  // [T] packed rows, chunk after chunk
  float* scales;      // [T, scales_of_row]

  Element x_element() const { return weight.compute == DType::f32 ? Element::f32 : kernels.bf16_x; }
  Element from() const { return weight.compute == DType::f32 ? Element::f32 : Element::bf16; }
  std::int64_t chunks() const { return ceil_div(args.x.rows, kChunkRows); }
  std::int64_t row_scales() const { return weight.input.scales_of_row(args.x.cols); }
  const std::byte* row(std::int64_t t) const {
    return static_cast<const std::byte*>(args.x.data) + t * args.x.row_stride * element_bytes(from());
  }

  PackedRows rows_of(std::int64_t chunk) const {
    const std::int64_t first = chunk * kChunkRows;
    return {packed + first * packed_row_bytes(args.x.cols, x_element()), x_element(),
            std::min(kChunkRows, args.x.rows - first), args.x.cols, scales + first * row_scales()};
  }

  void pack(std::int64_t chunk) const {
    PackArgs a;
    a.from = from();
    a.row_stride = args.x.row_stride;
    a.x = row(chunk * kChunkRows);
    a.cols = args.x.cols;
    const PackedRows rows = rows_of(chunk);
    pack_rows(kernels, a, rows.rows, rows);
  }

  void quantize(std::int64_t t) const {
    const InputRow input{row(t), from(), args.x.cols, nullptr, scales + t * row_scales()};
    quantize_packed_row(kernels, weight.input, input, rows_of(t / kChunkRows), t % kChunkRows);
  }

  void multiply(std::int64_t chunk, std::int64_t first, std::int64_t last) const {
    const PairRange range{weight.layout, weight.pair(first), first, last, weight.compute == DType::f32};
    const PackedRows x = rows_of(chunk);
    multiply_pairs(kernels, range, x, [&](std::int64_t pair, const PairTotals& totals) {
      store(chunk, pair, BlockSplit(x.rows), totals);
    });
  }

  void store(std::int64_t chunk, std::int64_t pair, const BlockSplit& split, const PairTotals& totals) const {
    const std::int64_t column = pair * kPairRows;
    // The bias has [N] elements, a pair reads 32.
    float bias[kPairRows] = {};
    StoreArgs s;
    s.columns = static_cast<int>(std::min<std::int64_t>(kPairRows, weight.rows - column));
    if (args.bias != nullptr) std::copy_n(args.bias + column, s.columns, bias);
    s.epilogue.bias = args.bias != nullptr ? bias : nullptr;
    s.epilogue.output_scale = weight.output_scales(pair);
    s.to = args.y.dtype == DType::f32 ? Element::f32 : Element::bf16;
    s.row_stride = args.y.row_stride;
    s.accumulate = args.accumulate;
    for (std::int64_t b = 0; b < split.blocks; ++b) {
      const std::int64_t row = chunk * kChunkRows + split.first(b);
      s.tokens = split.tokens(b);
      s.totals = totals.block(split, b);
      if (weight.input.token_scales) s.epilogue.token_scale = scales + row;
      s.y = static_cast<std::byte*>(args.y.data) + (row * s.row_stride + column) * element_bytes(s.to);
      kernels.store(s);
    }
  }
};

}  // namespace

PackedDense::PackedDense(const QuantTensor& weight, Recipe recipe)
    : compute(recipe == Recipe::f32 ? DType::f32 : DType::bf16), input(input_rounding(recipe, weight.input_scale)) {
  const bool exact_bf16 =
      weight.codes.dtype == DType::bf16 && weight.block_scale.data == nullptr && weight.tensor_scale == 1.0f;
  rows = weight.codes.rows;
  cols = weight.codes.cols;
  layout.pairs = ceil_div(rows, kPairRows);
  layout.cols = cols;
  layout.format = exact_bf16 && recipe == Recipe::f32 ? Format::bf16 : stored_format(recipe);
  layout.scaled = recipe == Recipe::fp8_block;
  layout.near_scales = scales_are_near(weight);
  data_ = host_buffer(static_cast<std::size_t>(layout.bytes()));
  const auto floats = [&](std::int64_t count) { return host_buffer(static_cast<std::size_t>(count) * sizeof(float)); };
  if (layout.scaled) block_scales_ = floats(layout.pairs * layout.scale_groups() * 2);
  if (layout.quantized() && !layout.scaled) output_scales_ = floats(layout.pairs * kPairRows);
  resident_bytes = static_cast<std::int64_t>(data_.bytes() + output_scales_.bytes() + block_scales_.bytes());
}

void PackedDense::fill(const QuantTensor& weight, const LineKernels& lines, ThreadPool& pool) {
  const std::int64_t floats = pack_scratch_floats(cols);
  const Buffer scratch = host_buffer(static_cast<std::size_t>(pool.size() * floats) * sizeof(float));
  // Each thread has huge pages of its own, but for those at the ends of its run.
  const std::int64_t grain = piece_pairs(1, layout.pairs, pool.size() * kPiecesOfWorker, 1);
  for_each_piece(pool, {1, layout.pairs, grain}, [&](std::int64_t, std::int64_t begin, std::int64_t end, int worker) {
    const PackTools tools{lines, scratch.as<float>() + worker * floats};
    take_huge_pages(data_, static_cast<std::size_t>(begin * layout.pair_bytes()),
                    static_cast<std::size_t>(end * layout.pair_bytes()));
    for (std::int64_t p = begin; p < end; ++p) {
      const PairData to{data_.as<std::byte>() + p * layout.pair_bytes(), block_scales(p), output_scales(p), nullptr};
      const float scale = input.output_factor * weight.tensor_scale;
      const PanelSource panels[2] = {{&weight, p * kPairRows, scale}, {&weight, p * kPairRows + kPanelRows, scale}};
      pack_pair(layout, panels, tools, to);
    }
    release_rows(weight, begin * kPairRows, end * kPairRows);
    finish_lines();
  });
}

std::unique_ptr<PackedDense> make_dense(const QuantTensor& weight, Recipe recipe, ThreadPool& pool,
                                        const LineKernels& lines) {
  if (weight.codes.rows < 1 || weight.codes.cols < 1) fail(ErrorCode::bad_input, "dense weight without elements");
  auto dense = std::make_unique<PackedDense>(weight, recipe);
  dense->fill(weight, lines, pool);
  return dense;
}

std::size_t linear_workspace_bytes(std::int64_t tokens, std::int64_t cols) {
  const std::int64_t scales = tokens * ceil_div(cols, kScaledK) * std::int64_t{sizeof(float)};
  return Workspace::rounded_bytes(static_cast<std::size_t>(tokens * packed_row_bytes(cols, Element::f32))) +
         Workspace::rounded_bytes(static_cast<std::size_t>(scales));
}

void linear(const GemmKernels& kernels, ThreadPool& pool, const LinearArgs& args, Workspace& workspace) {
  const PackedDense& weight = check(args);
  if (args.x.rows == 0) return;
  const Workspace::Scope scope(workspace);
  Linear run{kernels, args, weight, nullptr, nullptr};
  run.packed = workspace.take<std::byte>(args.x.rows * packed_row_bytes(args.x.cols, run.x_element()));
  run.scales = workspace.take<float>(args.x.rows * run.row_scales());
  const bool quantized = weight.input.quantized;
  pool.parallel_for(quantized ? args.x.rows : run.chunks(), quantized ? kRowsOfTask : 1,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t i = begin; i < end; ++i) quantized ? run.quantize(i) : run.pack(i);
                    });
  const std::int64_t pairs = weight.layout.pairs;
  const std::int64_t grain = piece_pairs(run.chunks(), pairs, pool.size() * kPiecesOfWorker, 1);
  for_each_piece(
      pool, {run.chunks(), pairs, grain},
      [&](std::int64_t chunk, std::int64_t first, std::int64_t last, int) { run.multiply(chunk, first, last); });
}

}  // namespace sluice::cpu
