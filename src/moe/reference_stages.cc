#include "moe/reference_stages.h"

#include <algorithm>
#include <array>

#include "numerics/bf16.h"

namespace sluice::reference {

namespace {

void decode_operand_row(const QuantTensor& weight, WeightOperand operand, std::int64_t n, float* out) {
  switch (operand) {
    case WeightOperand::decoded:
      return decode_row(weight, n, out);
    case WeightOperand::decoded_bf16:
      decode_row(weight, n, out);
      return round_row(Rounding::bf16, weight.codes.cols, out);
    case WeightOperand::block_scaled:
      return decode_row_blocks(weight, n, out);
    case WeightOperand::codes:
      return decode_row_codes(weight, n, out);
  }
}

float chain(const float* x, const float* w, std::int64_t begin, std::int64_t end) {
  float sum = 0.0f;
  for (std::int64_t c = begin; c < end; ++c) sum += x[c] * w[c];
  return sum;
}

// As segmented_dot, with the scales of each segment.
float block_scaled_dot(const Gemm& g, std::int64_t i, const float* w, std::int64_t n, std::int64_t segment) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < g.x.cols; begin += segment) {
    const std::int64_t end = std::min(begin + segment, g.x.cols);
    const float scale = g.x.sum_scale(i, begin) * decode_block_scale(g.weight->block_scale, n, begin);
    const float scaled = chain(g.x.row(i), w, begin, end) * scale;
    total += scaled;
  }
  return total;
}

float scaled_dot(const Gemm& g, const RoundingPoints& points, std::int64_t i, const float* w, std::int64_t n) {
  if (points.sum_scale == SumScale::per_segment) return block_scaled_dot(g, i, w, n, points.segment_k);
  const float acc = segmented_dot(g.x.row(i), w, g.x.cols, points.segment_k);
  const float x_scale = g.x.sum_scale(i, 0);
  switch (points.sum_scale) {
    case SumScale::weight:
      return acc * g.weight_scale;
    case SumScale::alpha:
      return acc * (x_scale * g.weight_scale);
    case SumScale::x_then_w:
      return acc * x_scale * (decode_block_scale(g.weight->block_scale, n, 0) * g.weight_scale);
    default:
      return acc;
  }
}

}  // namespace

// The contract is in recipe.h; GEMM1 and GEMM2 read the same format in every recipe.
RoundingPoints rounding_points(Recipe recipe) {
  using W = WeightOperand;
  using F = RowFormat;
  using S = SumScale;
  struct Row {
    W weight;
    F gemm_input;
    S sum_scale;
  };
  constexpr std::array<Row, 9> kRows = {{
      {W::decoded, F::f32, S::none},             // f32
      {W::decoded_bf16, F::bf16, S::none},       // bf16
      {W::codes, F::fp8_row, S::x_then_w},       // fp8-tensor
      {W::codes, F::fp8_group, S::per_segment},  // fp8-block
      {W::block_scaled, F::bf16, S::weight},     // nvfp4-w4a16
      {W::block_scaled, F::nvfp4, S::alpha},     // nvfp4-w4a4/cutedsl
      {W::block_scaled, F::nvfp4, S::alpha},     // nvfp4-w4a4/cutlass
      {W::block_scaled, F::bf16, S::none},       // mxfp4-w4a16
      {W::block_scaled, F::mxfp8, S::none},      // mxfp4-w4a8
  }};
  const Row& row = kRows.at(static_cast<std::size_t>(recipe));
  RoundingPoints points;
  points.weight = row.weight;
  points.gemm1_input = points.intermediate = row.gemm_input;
  points.sum_scale = row.sum_scale;
  points.segment_k = recipe_info(recipe).segment_k;
  if (recipe != Recipe::f32) points.hidden = points.slot_row = Rounding::bf16;
  if (recipe == Recipe::nvfp4_w4a4_cutlass) points.gemm1_output = points.activated = Rounding::bf16;
  return points;
}

void round_row(Rounding rounding, std::int64_t count, float* row) {
  if (rounding == Rounding::none) return;
  for (std::int64_t c = 0; c < count; ++c) row[c] = round_to_bf16(row[c]);
}

float segmented_dot(const float* x, const float* w, std::int64_t count, std::int64_t segment) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < count; begin += segment) {
    const std::int64_t end = std::min(begin + segment, count);
    total += chain(x, w, begin, end);
  }
  return total;
}

void Workers::for_each(std::int64_t count, FunctionRef<void(std::int64_t i, int worker)> body) const {
  const auto range = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) body(i, worker);
  };
  if (pool == nullptr) return range(0, count, 0);
  pool->parallel_for(count, 8, range);
}

namespace {

// Row t of quantised input becomes row i. Rows that were quantised with the layer's own scale have its bits, which are
// not always those of 1 / (1 / scale).
void load_quantized(const QuantizedRows& q, std::int64_t t, float static_scale, const OperandRows& x, std::int64_t i) {
  const RowExtents n = row_extents(x.format, x.cols);
  const auto bytes = [&](const ConstTensorView& view, std::int64_t count, std::uint8_t* out) {
    const std::int64_t stride = dtype_bytes(view.dtype, view.row_stride);
    if (count > 0) std::copy_n(static_cast<const std::uint8_t*>(view.data) + t * stride, count, out + i * count);
  };
  bytes(q.codes, n.code_bytes, x.codes);
  bytes(q.block_scales, n.block_scales, x.block_scales);
  if (x.format == RowFormat::nvfp4) {
    x.sum_scales[i] = q.encode_scale == 1.0f / static_scale ? static_scale : 1.0f / q.encode_scale;
  } else if (n.sum_scales > 0) {
    std::copy_n(q.sum_scales.row<float>(q.sum_scales.rows == 1 ? 0 : t), n.sum_scales, x.sum_scales + i * n.sum_scales);
  }
  decode_operands(x, i);
}

}  // namespace

void gather(const LayerSpec& layer, const RoundingPoints& points, const RunArgs& args, const std::int64_t* routes,
            std::int64_t count, float static_scale, const OperandRows& x) {
  const bool f32 = args.hidden.dtype == DType::f32;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t t = routes[i] / args.top_k;
    if (args.quantized.codes) {
      load_quantized(args.quantized, t, static_scale, x, i);
      continue;
    }
    const float weight = layer.weight_on_input ? args.weights[routes[i]] : 1.0f;
    float* row = x.row(i);
    for (std::int64_t c = 0; c < x.cols; ++c) {
      row[c] = weight * (f32 ? args.hidden.row<float>(t)[c] : to_float(args.hidden.row<Bf16>(t)[c]));
    }
    round_row(points.hidden, x.cols, row);
    encode_row(x, i, static_scale);
  }
}

void gemm(const Gemm& g, const RoundingPoints& points, const Workers& workers) {
  const std::int64_t rows = g.weight->codes.rows;
  workers.for_each(rows, [&](std::int64_t n, int worker) {
    float* w = workers.weight_rows + worker * workers.longest;
    decode_operand_row(*g.weight, points.weight, n, w);
    const float bias = g.bias != nullptr ? decode_bias(*g.bias, n) : 0.0f;
    for (std::int64_t i = 0; i < g.count; ++i) {
      float y = scaled_dot(g, points, i, w, n);
      round_row(g.before_bias, 1, &y);
      if (g.bias != nullptr) y += bias;
      round_row(g.after_bias, 1, &y);
      g.y[i * rows + n] = y;
    }
  });
}

void activate_rows(const ActivationSpec& spec, const RoundingPoints& points, const float* gate, const float* up,
                   std::int64_t count, float static_scale, const OperandRows& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < out.cols; ++c) {
      const std::int64_t at = i * out.cols + c;
      out.values[at] = activate(spec, gate != nullptr ? gate[at] : 0.0f, up[at]);
    }
    round_row(points.activated, out.cols, out.row(i));
    encode_row(out, i, static_scale);
  }
}

void store_row(const TensorView& out, std::int64_t row, const float* values) {
  if (out.dtype == DType::f32) {
    std::copy_n(values, out.cols, out.row<float>(row));
    return;
  }
  for (std::int64_t c = 0; c < out.cols; ++c) out.row<Bf16>(row)[c] = to_bf16(values[c]);
}

void store_zeros(const TensorView& out, std::int64_t row) {
  if (out.dtype == DType::f32) std::fill_n(out.row<float>(row), out.cols, 0.0f);
  if (out.dtype == DType::bf16) std::fill_n(out.row<Bf16>(row), out.cols, Bf16{});
}

void weighted_sum(const float* const* slot_rows, const float* weights, std::int32_t slots, std::int64_t width,
                  float* sum) {
  std::fill_n(sum, width, 0.0f);
  for (std::int32_t s = 0; s < slots; ++s) {
    if (slot_rows[s] == nullptr) continue;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += weights[s] * slot_rows[s][c];
  }
}

}  // namespace sluice::reference
