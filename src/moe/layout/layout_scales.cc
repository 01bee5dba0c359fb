#include <algorithm>

#include "core/error.h"
#include "moe/layout/layout.h"

namespace sluice::layout {
namespace {

constexpr float kSmallestDivisor = 1e-12f;

std::vector<float> encode_scales(const std::vector<float>& first, const std::vector<float>& second) {
  std::vector<float> encode;
  for (const auto* list : {&first, &second}) {
    for (const float decode : *list) encode.push_back(1.0f / decode);
  }
  return encode;
}

std::vector<float> divided(const std::vector<QuantTensor>& weights, float encode) {
  std::vector<float> alphas;
  for (const QuantTensor& w : weights) alphas.push_back(w.tensor_scale / std::max(encode, kSmallestDivisor));
  return alphas;
}

}  // namespace

float scalarise(const std::vector<float>& encode_scales, bool& defaulted) {
  defaulted = encode_scales.empty();
  return defaulted ? 1.0f : *std::min_element(encode_scales.begin(), encode_scales.end());
}

Alphas resolve_alphas(const ExpertWeights& w) {
  Alphas a;
  bool no_input = false, no_intermediate = false;
  a.input_quant = scalarise(encode_scales(w.input_scales.gate, w.input_scales.up), no_input);
  a.intermediate_quant = scalarise(encode_scales(w.input_scales.down, {}), no_intermediate);
  a.input_defaulted = no_input || no_intermediate;
  a.gate = divided(w.gate, a.input_quant);
  a.up = divided(w.up, a.input_quant);
  a.down = divided(w.down, a.intermediate_quant);
  return a;
}

std::vector<float> align_to_rank(const ExpertVector& v, std::int64_t local_experts, std::int32_t rank,
                                 std::int32_t ranks) {
  std::vector<float> column;
  for (std::int64_t r = 0; r < v.rows; ++r) column.push_back(v.values[static_cast<std::size_t>(r * v.cols)]);
  const std::int64_t count = v.rows, global = local_experts * ranks;
  if (v.cols >= 1 && v.cols <= 2) {
    if (count == 1) return std::vector<float>(static_cast<std::size_t>(local_experts), column[0]);
    if (count == local_experts) return column;
    if (count == global) return {column.begin() + rank * local_experts, column.begin() + (rank + 1) * local_experts};
  }
  fail(ErrorCode::bad_input, "a scale of " + std::to_string(v.rows) + " x " + std::to_string(v.cols) + " experts",
       "1, " + std::to_string(local_experts) + " (this rank) or " + std::to_string(global) +
           " (all ranks) values, in at most 2 columns");
}

}  // namespace sluice::layout
