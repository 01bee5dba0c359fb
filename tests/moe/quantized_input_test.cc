// Input that a dispatcher has quantised: the same bits as when the runner quantises it, and scales that follow it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "moe/input_scales.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"

namespace sluice {
namespace {

using testing::Batch;
using Floats = std::vector<float>;

struct QuantizedInput : ::testing::Test {
  testing::LayerOptions o;
  Problem problem;
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  Batch batch;
  ExpertWeights weights;
  QuantMatrix matrix;

  void make(Recipe recipe, const testing::FormatOptions& format = {}) {
    o.layer.hidden = 200;  // ends inside a block of 16, 32 and 128
    o.layer.intermediate = 48;
    o.layer.routing.experts = 4;
    o.layer.routing.top_k = 2;
    problem.layer = o.layer;
    problem.recipe = recipe;
    weights = testing::quantized_weights(o, recipe, format);
    batch = testing::random_batch(o.layer, 5, DType::bf16, testing::RoutePattern::uniform, 9);
  }

  Floats hidden() const {
    Floats values;
    for (std::int64_t i = 0; i < 5 * 200; ++i) values.push_back(to_float(batch.view().row<Bf16>(0)[i]));
    return values;
  }

  QuantizedRows view(float encode_scale = 0.0f) const {
    QuantizedRows q;
    const BlockFormatInfo& info = matrix.info();
    const BlockLayout layout = matrix.layout();
    q.codes = dense_view(matrix.codes.data(), info.element, 5, 200);
    if (!matrix.byte_scales.empty()) {
      q.block_scales = dense_view(matrix.byte_scales.data(), info.scale, 5, layout.scale_cols);
    }
    if (!matrix.float_scales.empty()) {
      q.sum_scales = dense_view(matrix.float_scales.data(), DType::f32, 5, layout.scale_cols);
    }
    q.encode_scale = encode_scale;
    return q;
  }

  Floats run(const QuantizedRows& q) const {
    const auto prepared = runner->prepare(problem, ExpertWeights(weights));
    Floats out(5 * 200, NAN);
    const Buffer scratch = host_buffer(runner->workspace_bytes(problem, 5) + Workspace::kAlignBytes);
    Workspace workspace(scratch.data(), scratch.bytes());
    RunArgs args;
    args.quantized = q;
    args.ids = batch.ids.data();
    args.weights = batch.weights.data();
    args.top_k = 2;
    args.slots = {0, 4};
    args.sum = dense_view(out.data(), DType::f32, 5, 200);
    args.workspace = &workspace;
    runner->run(*prepared, args);
    return out;
  }

  Floats run_plain() const {
    return testing::run_batch(*runner, *runner->prepare(problem, ExpertWeights(weights)), problem, batch);
  }
};

TEST_F(QuantizedInput, GivesTheSameBits) {
  testing::FormatOptions dynamic;
  dynamic.static_input = false;
  for (const Recipe recipe : {Recipe::fp8_tensor, Recipe::fp8_block, Recipe::nvfp4_w4a4_cutedsl,
                              Recipe::nvfp4_w4a4_cutlass, Recipe::mxfp4_w4a8}) {
    make(recipe, dynamic);
    const Floats values = hidden();
    const FloatView rows{values.data(), 5, 200, 200};
    const float encode = 1.0f / layer_input_scales(recipe, weights.input_scales).gemm1;
    if (recipe == Recipe::fp8_tensor) matrix = quantize_fp8_rows(rows);
    if (recipe == Recipe::fp8_block) matrix = quantize_fp8_groups(rows);
    if (recipe == Recipe::mxfp4_w4a8) matrix = quantize_mxfp8(rows);
    if (uses_static_input_scales(recipe) && recipe != Recipe::fp8_tensor) matrix = quantize_nvfp4(rows, encode);
    EXPECT_EQ(run(view(encode)), run_plain()) << recipe_info(recipe).name;
  }
}

TEST_F(QuantizedInput, OneStaticFp8ScaleServesAllRows) {
  make(Recipe::fp8_tensor);
  const float scale = layer_input_scales(problem.recipe, weights.input_scales).gemm1;
  const Floats values = hidden();
  matrix = make_quant_matrix(BlockFormat::fp8_tensor, 5, 200);
  quantize_fp8_row_with_scale(values, scale, matrix.codes);
  QuantizedRows q = view();
  q.sum_scales = dense_view(&scale, DType::f32, 1, 1);
  EXPECT_EQ(run(q), run_plain());
}

// The rows were quantised with another scale than the file's: the result is that of a file with that scale.
TEST_F(QuantizedInput, AlphasFollowTheScaleOfTheInput) {
  make(Recipe::nvfp4_w4a4_cutedsl);
  const float other = 0.25f * layer_input_scales(problem.recipe, weights.input_scales).gemm1;
  const Floats values = hidden();
  matrix = quantize_nvfp4({values.data(), 5, 200, 200}, 1.0f / other);
  const Floats got = run(view(1.0f / other));
  EXPECT_NE(got, run_plain());
  weights.input_scales.gate.clear();
  weights.input_scales.gate.assign(4, 1.0f / (1.0f / other));
  weights.input_scales.up = weights.input_scales.gate;
  EXPECT_EQ(got, run_plain());
}

TEST_F(QuantizedInput, WhatDoesNotFitIsRefused) {
  make(Recipe::nvfp4_w4a4_cutlass);
  const Floats values = hidden();
  matrix = quantize_nvfp4({values.data(), 5, 200, 200}, 100.0f);
  const QuantizedRows good = view(100.0f);
  EXPECT_NO_THROW(run(good));
  using Change = std::function<void(QuantizedRows&)>;
  const std::vector<Change> changes = {
      [](QuantizedRows& q) { q.encode_scale = 0.0f; }, [](QuantizedRows& q) { q.codes.dtype = DType::e4m3; },
      [](QuantizedRows& q) { q.codes.cols = 100; }, [](QuantizedRows& q) { q.block_scales.cols = 12; },
      [](QuantizedRows& q) { q.block_scales = {}; }};
  for (const Change& change : changes) {
    QuantizedRows q = good;
    change(q);
    EXPECT_THROW(run(q), Error);
  }
  problem.layer.weight_on_input = true;
  problem.layer.routing.top_k = 1;
  EXPECT_THROW(run(good), Error);
  make(Recipe::nvfp4_w4a16);
  EXPECT_THROW(run(good), Error);  // a recipe with bf16 input
}

}  // namespace
}  // namespace sluice
