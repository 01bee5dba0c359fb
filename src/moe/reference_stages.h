// The stages of the reference runner: gather > GEMM1 > activation > GEMM2 > sum. Slow and obvious; the formats of all
// operands and every rounding point are a parameter (RoundingPoints), so that a new recipe is a new row of a table.
//
// Values are kept as float32 that lie on the grid of their format. Called by reference_runner.cc and by tests. No
// state: thread-safe as long as each caller has its own rows.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "moe/recipe.h"
#include "moe/runner.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice::reference {

enum class OperandFormat : std::uint8_t { f32, bf16 };

// Where a recipe rounds. f32 means: not at all.
struct RoundingPoints {
  OperandFormat weight = OperandFormat::f32;        // decoded weights
  OperandFormat gemm1_input = OperandFormat::f32;   // hidden rows, after the weight of weight_on_input
  OperandFormat gemm1_output = OperandFormat::f32;  // gate and up with bias, before the activation
  OperandFormat intermediate = OperandFormat::f32;  // activated rows
  OperandFormat slot_row = OperandFormat::f32;      // expert outputs with bias
  std::int32_t segment_k = 0;                       // S of the accumulation
};

// nullopt: the reference has not learnt this recipe.
std::optional<RoundingPoints> rounding_points(Recipe recipe);

// Rounds each element once to the format.
void round_row(OperandFormat format, std::int64_t count, float* row);

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

// x[i] = hidden row of route routes[i] (token = route / k), weighted first for weight_on_input. x [count, W].
void gather(const LayerSpec& layer, const RoundingPoints& points, const RunArgs& args, const std::int64_t* routes,
            std::int64_t count, float* x);

// y[i, n] = dot(x[i], weight row n) + bias n, for `count` rows. The bias is added in fp32 to the finished sum.
struct Gemm {
  const QuantTensor* weight = nullptr;
  const BiasView* bias = nullptr;  // nullptr = none
  const float* x = nullptr;        // [count, K]
  float* y = nullptr;              // [count, N]
  std::int64_t count = 0;
  OperandFormat output = OperandFormat::f32;
};
void gemm(const Gemm& g, const RoundingPoints& points, const Workers& workers);

// out[i] = activation of gate[i] and up[i], rounded once to the intermediate format. gate may be nullptr.
void activate_rows(const ActivationSpec& spec, const RoundingPoints& points, const float* gate, const float* up,
                   std::int64_t elements, float* out);

// Writes one row of `out` (bf16 or f32): converts with one rounding.
void store_row(const TensorView& out, std::int64_t row, const float* values);
void store_zeros(const TensorView& out, std::int64_t row);

// sum[c] = weighted sum over the slots of one token in slot order, fp32. slot_rows[s] = nullptr: slot s is skipped.
void weighted_sum(const float* const* slot_rows, const float* weights, std::int32_t slots, std::int64_t width,
                  float* sum);

}  // namespace sluice::reference
