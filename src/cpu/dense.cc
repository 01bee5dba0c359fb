#include "cpu/dense.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kPiecesOfWorker = 16;

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

  Element x_element() const { return weight.compute == DType::f32 ? Element::f32 : kernels.bf16_x; }
  const GemmKernel* kernel() const {
    if (weight.compute == DType::bf16) return kernels.bf16;
    return weight.layout.element == Element::bf16 ? kernels.f32_bf16 : kernels.f32;
  }
  std::int64_t chunks() const { return ceil_div(args.x.rows, kChunkRows); }

  PackedRows rows_of(std::int64_t chunk) const {
    const std::int64_t first = chunk * kChunkRows;
    return {packed + first * packed_row_bytes(args.x.cols, x_element()), x_element(),
            std::min(kChunkRows, args.x.rows - first), args.x.cols};
  }

  void pack(std::int64_t chunk) const {
    PackArgs a;
    a.from = weight.compute == DType::f32 ? Element::f32 : Element::bf16;
    a.row_stride = args.x.row_stride;
    a.x = static_cast<const std::byte*>(args.x.data) + chunk * kChunkRows * a.row_stride * element_bytes(a.from);
    a.cols = args.x.cols;
    const PackedRows rows = rows_of(chunk);
    pack_rows(kernels, a, rows.rows, rows);
  }

  void multiply(std::int64_t chunk, std::int64_t pair) const {
    Totals totals;
    const PackedRows x = rows_of(chunk);
    multiply_pair(kernel(), weight.layout, weight.pair(pair), x, totals);
    const std::int64_t column = pair * kPairRows;
    // The bias has [N] elements, a pair reads 32.
    float bias[kPairRows] = {};
    StoreArgs s;
    s.columns = static_cast<int>(std::min<std::int64_t>(kPairRows, weight.rows - column));
    if (args.bias != nullptr) std::copy_n(args.bias + column, s.columns, bias);
    s.bias = args.bias != nullptr ? bias : nullptr;
    s.to = args.y.dtype == DType::f32 ? Element::f32 : Element::bf16;
    s.row_stride = args.y.row_stride;
    s.accumulate = args.accumulate;
    const BlockSplit split(x.rows);
    for (std::int64_t b = 0; b < split.blocks; ++b) {
      const std::int64_t row = chunk * kChunkRows + split.first(b);
      s.tokens = split.tokens(b);
      s.totals = totals.block(split, b);
      s.y = static_cast<std::byte*>(args.y.data) + (row * s.row_stride + column) * element_bytes(s.to);
      kernels.store(s);
    }
  }
};

}  // namespace

PackedDense::PackedDense(const QuantTensor& weight, DType compute_) : compute(compute_) {
  const bool exact_bf16 =
      weight.codes.dtype == DType::bf16 && weight.block_scale.data == nullptr && weight.tensor_scale == 1.0f;
  rows = weight.codes.rows;
  cols = weight.codes.cols;
  layout = {ceil_div(rows, kPairRows), cols, compute == DType::bf16 || exact_bf16 ? Element::bf16 : Element::f32};
  data_ = host_buffer(static_cast<std::size_t>(layout.bytes()));
  resident_bytes = layout.bytes();
}

void PackedDense::fill(const QuantTensor& weight, ThreadPool& pool) {
  const std::int64_t floats = pack_scratch_floats(cols);
  const Buffer scratch = host_buffer(static_cast<std::size_t>(pool.size() * floats) * sizeof(float));
  pool.parallel_for(layout.pairs, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::byte* to = data_.as<std::byte>() + p * layout.pair_bytes();
      for (int panel = 0; panel < 2; ++panel) {
        const PanelSource source{&weight, p * kPairRows + panel * kPanelRows};
        pack_panel(layout, source, panel, scratch.as<float>() + worker * floats, to);
      }
    }
  });
}

std::unique_ptr<PackedDense> make_dense(const QuantTensor& weight, Recipe recipe, ThreadPool& pool) {
  if (weight.codes.rows < 1 || weight.codes.cols < 1) fail(ErrorCode::bad_input, "dense weight without elements");
  auto dense = std::make_unique<PackedDense>(weight, recipe == Recipe::f32 ? DType::f32 : DType::bf16);
  dense->fill(weight, pool);
  return dense;
}

std::size_t linear_workspace_bytes(std::int64_t tokens, std::int64_t cols) {
  return Workspace::rounded_bytes(static_cast<std::size_t>(tokens * packed_row_bytes(cols, Element::f32)));
}

void linear(const GemmKernels& kernels, ThreadPool& pool, const LinearArgs& args, Workspace& workspace) {
  const PackedDense& weight = check(args);
  if (args.x.rows == 0) return;
  const Workspace::Scope scope(workspace);
  Linear run{kernels, args, weight, nullptr};
  run.packed = workspace.take<std::byte>(args.x.rows * packed_row_bytes(args.x.cols, run.x_element()));
  pool.parallel_for(run.chunks(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t c = begin; c < end; ++c) run.pack(c);
  });
  const std::int64_t pairs = weight.layout.pairs;
  const std::int64_t grain = piece_pairs(run.chunks(), pairs, pool.size() * kPiecesOfWorker, 1);
  const std::int64_t pieces = ceil_div(pairs, grain);
  pool.parallel_for(run.chunks() * pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % pieces * grain;
      for (std::int64_t p = first; p < std::min(first + grain, pairs); ++p) run.multiply(i / pieces, p);
    }
  });
}

}  // namespace sluice::cpu
