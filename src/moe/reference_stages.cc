#include "moe/reference_stages.h"

#include <algorithm>

#include "numerics/bf16.h"

namespace sluice::reference {

std::optional<RoundingPoints> rounding_points(Recipe recipe) {
  const std::int32_t segment = recipe_info(recipe).segment_k;
  constexpr OperandFormat kF32 = OperandFormat::f32, kBf16 = OperandFormat::bf16;
  switch (recipe) {
    case Recipe::f32:
      return RoundingPoints{kF32, kF32, kF32, kF32, kF32, segment};
    case Recipe::bf16:
      return RoundingPoints{kBf16, kBf16, kF32, kBf16, kBf16, segment};
    default:
      return std::nullopt;
  }
}

void round_row(OperandFormat format, std::int64_t count, float* row) {
  if (format == OperandFormat::f32) return;
  for (std::int64_t c = 0; c < count; ++c) row[c] = round_to_bf16(row[c]);
}

float segmented_dot(const float* x, const float* w, std::int64_t count, std::int64_t segment) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < count; begin += segment) {
    const std::int64_t end = std::min(begin + segment, count);
    float chain = 0.0f;
    for (std::int64_t c = begin; c < end; ++c) chain += x[c] * w[c];
    total += chain;
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

void gather(const LayerSpec& layer, const RoundingPoints& points, const RunArgs& args, const std::int64_t* routes,
            std::int64_t count, float* x) {
  const std::int64_t width = layer.width();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t t = routes[i] / args.top_k;
    const float weight = layer.weight_on_input ? args.weights[routes[i]] : 1.0f;
    float* row = x + i * width;
    for (std::int64_t c = 0; c < width; ++c) {
      const bool f32 = args.hidden.dtype == DType::f32;
      row[c] = weight * (f32 ? args.hidden.row<float>(t)[c] : to_float(args.hidden.row<Bf16>(t)[c]));
    }
    round_row(points.gemm1_input, width, row);
  }
}

void gemm(const Gemm& g, const RoundingPoints& points, const Workers& workers) {
  const std::int64_t rows = g.weight->codes.rows, cols = g.weight->codes.cols;
  workers.for_each(rows, [&](std::int64_t n, int worker) {
    float* w = workers.weight_rows + worker * workers.longest;
    decode_row(*g.weight, n, w);
    round_row(points.weight, cols, w);
    const float bias = g.bias != nullptr ? decode_bias(*g.bias, n) : 0.0f;
    for (std::int64_t i = 0; i < g.count; ++i) {
      float y = segmented_dot(g.x + i * cols, w, cols, points.segment_k);
      if (g.bias != nullptr) y += bias;
      round_row(g.output, 1, &y);
      g.y[i * rows + n] = y;
    }
  });
}

void activate_rows(const ActivationSpec& spec, const RoundingPoints& points, const float* gate, const float* up,
                   std::int64_t elements, float* out) {
  for (std::int64_t i = 0; i < elements; ++i) out[i] = activate(spec, gate != nullptr ? gate[i] : 0.0f, up[i]);
  round_row(points.intermediate, elements, out);
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
