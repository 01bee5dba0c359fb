// The stages of the reference runner: gather > GEMM1 > activation > GEMM2 > sum. Slow and obvious; the formats of all
// operands, every rounding point and the place of every scale are a parameter (RoundingPoints), so that a recipe is a
// row of a table.
//
// Values are kept as float32 that lie on the grid of their format. Called by reference_runner.cc and by tests. No
// state: thread-safe as long as each caller has its own rows.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "moe/recipe.h"
#include "moe/reference_operands.h"
#include "moe/runner.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice::reference {

enum class Rounding : std::uint8_t { none, bf16 };

enum class WeightOperand : std::uint8_t {
  decoded,       // with all scales, in fp32
  decoded_bf16,  // the same, rounded to bf16
  block_scaled,  // code * block_scale
  codes,
};

// Where the scales that are not part of the operands act on a sum; x is that of the row, w that of the weight.
enum class SumScale : std::uint8_t {
  none,
  weight,       // acc *= w
  alpha,        // acc *= fp32(x * w)
  x_then_w,     // acc = (acc * x) * w
  per_segment,  // acc += chain * fp32(x * w), in place of acc += chain
};

struct RoundingPoints {
  WeightOperand weight = WeightOperand::decoded;
  RowFormat gemm1_input = RowFormat::f32;
  RowFormat intermediate = RowFormat::f32;
  SumScale sum_scale = SumScale::none;
  Rounding hidden = Rounding::none;        // the hidden row times the weight of weight_on_input, before gemm1_input
  Rounding gemm1_output = Rounding::none;  // scaled sums of gate and up, before their bias
  Rounding activated = Rounding::none;     // activated rows, before they take the format of `intermediate`
  Rounding slot_row = Rounding::none;      // expert outputs with bias
  std::int32_t segment_k = 0;              // S of the accumulation
};

RoundingPoints rounding_points(Recipe recipe);

// Rounds each element once.
void round_row(Rounding rounding, std::int64_t count, float* row);

// The accumulation of every recipe: chains of `segment` products in ascending order, each from zero in fp32; the chain
// sums added in ascending order in fp32.
float segmented_dot(const float* x, const float* w, std::int64_t count, std::int64_t segment);

// Work shared by the stages of one call.
struct Workers {
  ThreadPool* pool = nullptr;    // nullptr = the calling thread alone
  float* weight_rows = nullptr;  // [workers, longest] one decoded row a worker
  std::int64_t longest = 0;      // longest row of any weight

  int count() const { return pool == nullptr ? 1 : pool->size(); }
  // body(i, worker) for i in [0, count), each once, in any order.
  void for_each(std::int64_t count, FunctionRef<void(std::int64_t i, int worker)> body) const;
};

// x[i] = what GEMM1 reads of route routes[i] (token = route / k). `static_scale` as in encode_row.
void gather(const LayerSpec& layer, const RoundingPoints& points, const RunArgs& args, const std::int64_t* routes,
            std::int64_t count, float static_scale, const OperandRows& x);

// y[i, n] = scaled dot of row i and weight row n, rounded, + bias n in fp32.
struct Gemm {
  const QuantTensor* weight = nullptr;
  float weight_scale = 1.0f;       // of the tensor; it is not always weight->tensor_scale (upstream_gate_alpha)
  const BiasView* bias = nullptr;  // nullptr = none
  OperandRows x;                   // [count, K]
  float* y = nullptr;              // [count, N]
  std::int64_t count = 0;
  Rounding before_bias = Rounding::none;
  Rounding after_bias = Rounding::none;
};
void gemm(const Gemm& g, const RoundingPoints& points, const Workers& workers);

// out[i] = activation of gate[i] and up[i], in the format of the intermediate. gate may be nullptr.
void activate_rows(const ActivationSpec& spec, const RoundingPoints& points, const float* gate, const float* up,
                   std::int64_t count, float static_scale, const OperandRows& out);

// Writes one row of `out` (bf16 or f32): converts with one rounding.
void store_row(const TensorView& out, std::int64_t row, const float* values);
void store_zeros(const TensorView& out, std::int64_t row);

// sum[c] = weighted sum over the slots of one token in slot order, fp32. slot_rows[s] = nullptr: slot s is skipped.
void weighted_sum(const float* const* slot_rows, const float* weights, std::int32_t slots, std::int64_t width,
                  float* sum);

}  // namespace sluice::reference
