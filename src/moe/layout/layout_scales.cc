#include "moe/input_scales.h"
#include "moe/layout/layout.h"

namespace sluice::layout {
namespace {

std::vector<float> scales_of(const std::vector<QuantTensor>& weights) {
  std::vector<float> scales;
  for (const QuantTensor& w : weights) scales.push_back(w.tensor_scale);
  return scales;
}

}  // namespace

Alphas resolve_alphas(const ExpertWeights& w) {
  Alphas a;
  std::vector<float> gemm1 = w.input_scales.gate;
  gemm1.insert(gemm1.end(), w.input_scales.up.begin(), w.input_scales.up.end());
  a.input_quant = 1.0f / shared_decode_scale(gemm1, "GEMM1 input", &a.warnings);
  a.intermediate_quant = 1.0f / shared_decode_scale(w.input_scales.down, "GEMM2 input", &a.warnings);
  a.gate = alphas(scales_of(w.gate), a.input_quant);
  a.up = alphas(scales_of(w.up), a.input_quant);
  a.down = alphas(scales_of(w.down), a.intermediate_quant);
  return a;
}

}  // namespace sluice::layout
