// Shared by the tests of the CPU runner: problems, and a sink that keeps every stage by route.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cpu/gemm_harness.h"
#include "cpu/runner_cpu.h"
#include "moe/random_layer.h"
#include "moe/runner_harness.h"

namespace sluice::cpu::testing {

inline Problem make_problem(std::int64_t hidden, std::int64_t intermediate, std::int32_t experts, std::int32_t top_k) {
  Problem p;
  p.layer.hidden = hidden;
  p.layer.intermediate = intermediate;
  p.layer.routing.experts = experts;
  p.layer.routing.top_k = top_k;
  return p;
}

using Row = std::vector<float>;

class StageRows final : public StageSink {
 public:
  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      Row& row = stages_[std::string(stage)][route != nullptr ? route[i] : i];
      row.resize(static_cast<std::size_t>(rows.cols));
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        row[static_cast<std::size_t>(c)] =
            rows.dtype == DType::u8 ? rows.row<std::uint8_t>(i)[c] : rows.row<float>(i)[c];
      }
    }
  }
  // Rows of a stage by t * k + s; empty when it was not recorded.
  const std::map<std::int64_t, Row>& of(std::string_view stage) { return stages_[std::string(stage)]; }

 private:
  std::map<std::string, std::map<std::int64_t, Row>> stages_;
};

inline Problem recipe_problem(Recipe recipe, std::int64_t hidden, std::int64_t intermediate, std::int32_t experts,
                              std::int32_t top_k) {
  Problem p = make_problem(hidden, intermediate, experts, top_k);
  p.recipe = recipe;
  return p;
}

inline std::vector<Recipe> quantized_recipes() {
  return {Recipe::fp8_tensor,         Recipe::fp8_block,   Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
          Recipe::nvfp4_w4a4_cutlass, Recipe::mxfp4_w4a16, Recipe::mxfp4_w4a8};
}

// Row n of a weight in bf16, as f32.
inline Row weight_row(const QuantTensor& weight, std::int64_t n) {
  Row row(static_cast<std::size_t>(weight.codes.cols));
  decode_row(weight, n, row.data());
  for (float& v : row) v = round_to_bf16(v);
  return row;
}

}  // namespace sluice::cpu::testing
