#include "cpu/head_linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/error.h"
#include "cpu/pieces.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kPiecesOfWorker = 16;

// Packing rounds to bf16 what it has scaled, whatever it packs for; otherwise f32 inputs would stay f32 where there is
// no dot product of bf16.
constexpr std::array<float, kChunkRows> kOnes = [] {
  std::array<float, kChunkRows> ones{};
  for (float& one : ones) one = 1.0f;
  return ones;
}();

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "head_linear: " + what, expected);
}

std::string shape_text(const ConstTensorView& v) {
  return "[" + std::to_string(v.rows) + ", " + std::to_string(v.cols) + "] " + std::string(dtype_name(v.dtype));
}

const HeadWeights& check(const HeadLinearArgs& args) {
  const auto* weight = dynamic_cast<const HeadWeights*>(args.weight);
  require(weight != nullptr, "the weight was prepared by another backend", "one of this backend's prepare_heads");
  const auto known = [&](DType type) { return type == DType::f32 || type == weight->compute(); };
  require(known(args.x.dtype) && args.x.cols == weight->heads() * (weight->cols + args.tail),
          "x is " + shape_text(args.x),
          std::to_string(weight->heads()) + " heads of " + std::to_string(weight->cols + args.tail) + " columns");
  require(
      known(args.y.dtype) && args.y.rows == args.x.rows && args.y.cols == weight->heads() * (weight->rows + args.tail),
      "y is " + shape_text(args.y),
      std::to_string(weight->heads()) + " heads of " + std::to_string(weight->rows + args.tail) + " columns");
  const bool copies = args.x.dtype == DType::f32 && args.y.dtype == DType::f32;
  require(args.tail == 0 || (args.tail > 0 && copies), "columns to copy between other types", "f32");
  return *weight;
}

Element element_of(DType type) { return type == DType::f32 ? Element::f32 : Element::bf16; }

// Everything one call works on. A unit is one head of one chunk of tokens.
struct HeadLinear {
  const GemmKernels& kernels;
  const HeadLinearArgs& args;
  const HeadWeights& weight;
  std::byte* packed;  // [chunk][head][tokens of the chunk] packed rows

  Element x_element() const { return weight.compute() == DType::f32 ? Element::f32 : kernels.bf16_x; }
  std::int64_t units() const { return ceil_div(args.x.rows, kChunkRows) * weight.heads(); }
  std::int64_t first_row(std::int64_t unit) const { return unit / weight.heads() * kChunkRows; }
  std::int64_t head(std::int64_t unit) const { return unit % weight.heads(); }

  PackedRows rows_of(std::int64_t unit) const {
    const std::int64_t first = first_row(unit);
    const std::int64_t rows = std::min(kChunkRows, args.x.rows - first);
    const std::int64_t before = first * weight.heads() + rows * head(unit);
    return {packed + before * packed_row_bytes(weight.cols, x_element()), x_element(), rows, weight.cols};
  }

  void pack(std::int64_t unit) const {
    const PackedRows rows = rows_of(unit);
    PackArgs a;
    a.from = element_of(args.x.dtype);
    a.row_stride = args.x.row_stride;
    const std::int64_t column = head(unit) * (weight.cols + args.tail);
    a.x =
        static_cast<const std::byte*>(args.x.data) + (first_row(unit) * a.row_stride + column) * element_bytes(a.from);
    a.cols = weight.cols;
    if (args.x.dtype == DType::f32 && weight.compute() == DType::bf16) a.scale = kOnes.data();
    pack_rows(kernels, a, rows.rows, rows);
    copy_tails(unit, rows.rows);
  }

  void copy_tails(std::int64_t unit, std::int64_t rows) const {
    if (args.tail == 0) return;
    for (std::int64_t t = first_row(unit); t < first_row(unit) + rows; ++t) {
      const float* from = args.x.row<float>(t) + head(unit) * (weight.cols + args.tail) + weight.cols;
      float* to = args.y.row<float>(t) + head(unit) * (weight.rows + args.tail) + weight.rows;
      std::memcpy(to, from, static_cast<std::size_t>(args.tail) * sizeof(float));
    }
  }

  void multiply(std::int64_t unit, std::int64_t first, std::int64_t last) const {
    const PairRange range{
        weight.layout(), {weight.pair(head(unit), first)}, first, last, weight.compute() == DType::f32};
    const PackedRows x = rows_of(unit);
    multiply_pairs(kernels, range, x,
                   [&](std::int64_t pair, const PairTotals& totals) { store(unit, pair, BlockSplit(x.rows), totals); });
  }

  void store(std::int64_t unit, std::int64_t pair, const BlockSplit& split, const PairTotals& totals) const {
    const std::int64_t within = pair * kPairRows;
    const std::int64_t column = head(unit) * (weight.rows + args.tail) + within;
    StoreArgs s;
    s.columns = static_cast<int>(std::min<std::int64_t>(kPairRows, weight.rows - within));
    s.to = element_of(args.y.dtype);
    s.row_stride = args.y.row_stride;
    for (std::int64_t b = 0; b < split.blocks; ++b) {
      const std::int64_t row = first_row(unit) + split.first(b);
      s.tokens = split.tokens(b);
      s.totals = totals.block(split, b);
      s.y = static_cast<std::byte*>(args.y.data) + (row * s.row_stride + column) * element_bytes(s.to);
      kernels.store(s);
    }
  }
};

PanelLayout layout_of(const std::vector<QuantTensor>& weights, DType compute) {
  if (compute != DType::bf16 && compute != DType::f32) {
    fail(ErrorCode::unsupported, "weights of heads for compute type " + std::string(dtype_name(compute)),
         "bf16 or f32");
  }
  require(!weights.empty(), "no heads", "at least one");
  const MatrixView& first = weights.front().codes;
  bool all_bf16 = true;
  for (const QuantTensor& w : weights) {
    require(w.codes.rows == first.rows && w.codes.cols == first.cols, "heads of different sizes", "equal ones");
    all_bf16 = all_bf16 && w.codes.dtype == DType::bf16 && w.block_scale.data == nullptr && w.tensor_scale == 1.0f;
  }
  require(first.rows > 0 && first.cols > 0, "a head without elements", "at least one row and column");
  return {ceil_div(first.rows, kPairRows), first.cols, compute == DType::bf16 || all_bf16 ? Format::bf16 : Format::f32};
}

}  // namespace

HeadWeights::HeadWeights(const std::vector<QuantTensor>& weights, DType compute, ThreadPool& pool)
    : heads_(static_cast<std::int64_t>(weights.size())), compute_(compute), layout_(layout_of(weights, compute)) {
  rows = weights.front().codes.rows;
  cols = weights.front().codes.cols;
  resident_bytes = heads_ * layout_.bytes();
  data_ = host_buffer(static_cast<std::size_t>(resident_bytes));
  const std::int64_t floats = pack_scratch_floats(cols);
  const Buffer scratch = host_buffer(static_cast<std::size_t>(pool.size() * floats) * sizeof(float));
  pool.parallel_for(heads_ * layout_.pairs, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const QuantTensor& weight = weights[static_cast<std::size_t>(i / layout_.pairs)];
      const std::int64_t row = i % layout_.pairs * kPairRows;
      const PanelSource panels[2] = {{&weight, row}, {&weight, row + kPanelRows}};
      pack_pair(layout_, panels, {line_kernels_scalar(), scratch.as<float>() + worker * floats},
                {data_.as<std::byte>() + i * layout_.pair_bytes(), nullptr, nullptr, nullptr});
    }
  });
}

void head_linear(const GemmKernels& kernels, ThreadPool& pool, const HeadLinearArgs& args, Workspace& workspace) {
  const HeadWeights& weight = check(args);
  if (args.x.rows == 0) return;
  const Workspace::Scope scope(workspace);
  HeadLinear run{kernels, args, weight, nullptr};
  run.packed = workspace.take<std::byte>(args.x.rows * weight.heads() * packed_row_bytes(weight.cols, run.x_element()));
  const std::int64_t units = run.units();
  const std::int64_t several = std::max<std::int64_t>(1, units / (pool.size() * kPiecesOfWorker));
  pool.parallel_for(units, several, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t u = begin; u < end; ++u) run.pack(u);
  });
  const std::int64_t pairs = weight.layout().pairs;
  const std::int64_t grain = piece_pairs(units, pairs, pool.size() * kPiecesOfWorker, 1);
  for_each_piece(pool, {units, pairs, grain}, [&](std::int64_t unit, std::int64_t first, std::int64_t last, int) {
    run.multiply(unit, first, last);
  });
}

}  // namespace sluice::cpu
