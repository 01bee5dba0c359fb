#include "moe/runner_checks.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kAnyRows = 0;

std::string shape_text(std::int64_t rows, std::int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

[[noreturn]] void bad_weights(std::string_view list, std::int64_t e, const std::string& is,
                              const std::string& expected) {
  fail(ErrorCode::bad_input, std::string(list) + " of expert " + std::to_string(e) + " " + is, expected);
}

void check_matrices(std::string_view name, const std::vector<QuantTensor>& list, std::int64_t count, std::int64_t rows,
                    std::int64_t cols) {
  if (static_cast<std::int64_t>(list.size()) != count) {
    fail(ErrorCode::bad_input, "there are " + std::to_string(list.size()) + " " + std::string(name) + " matrices",
         std::to_string(count));
  }
  for (std::int64_t e = 0; e < count; ++e) {
    const MatrixView& codes = list[e].codes;
    if (codes.data == nullptr) bad_weights(name, e, "is missing", shape_text(rows, cols));
    if (codes.rows != rows || codes.cols != cols) {
      bad_weights(name, e, "has shape " + shape_text(codes.rows, codes.cols), shape_text(rows, cols));
    }
  }
}

void check_biases(std::string_view name, const std::vector<BiasView>& list, std::int64_t count, std::int64_t rows) {
  if (static_cast<std::int64_t>(list.size()) != count) {
    fail(ErrorCode::bad_input, "there are " + std::to_string(list.size()) + " " + std::string(name) + " vectors",
         std::to_string(count));
  }
  for (std::int64_t e = 0; e < count; ++e) {
    if (list[e].data == nullptr) bad_weights(name, e, "is missing", std::to_string(rows) + " values");
    if (list[e].count != rows) {
      bad_weights(name, e, "has " + std::to_string(list[e].count) + " values", std::to_string(rows));
    }
  }
}

bool has_blocks(const QuantTensor& w, std::initializer_list<DType> types, std::int64_t rows, std::int64_t cols) {
  const BlockScaleView& s = w.block_scale;
  if (s.data == nullptr || std::find(types.begin(), types.end(), s.dtype) == types.end()) return false;
  return (rows == kAnyRows || s.block_rows == rows) && s.block_cols == cols;
}

bool is_float(DType type) { return type == DType::bf16 || type == DType::f16 || type == DType::f32; }

bool fits_fp8_tensor(const QuantTensor& w) {
  if (w.codes.dtype != DType::e4m3) return false;
  const BlockScaleView& s = w.block_scale;
  return s.data == nullptr || (s.dtype == DType::f32 && s.block_rows == 1 && s.block_cols >= w.codes.cols);
}

bool fits(Recipe recipe, const QuantTensor& w) {
  switch (recipe) {
    case Recipe::f32:
      return true;
    case Recipe::bf16:
      return is_float(w.codes.dtype);
    case Recipe::fp8_tensor:
      return fits_fp8_tensor(w);
    case Recipe::fp8_block:
      return w.codes.dtype == DType::e4m3 && w.tensor_scale == 1.0f &&
             has_blocks(w, {DType::f32, DType::bf16, DType::e8m0}, kAnyRows, recipe_info(recipe).segment_k);
    case Recipe::nvfp4_w4a16:
    case Recipe::nvfp4_w4a4_cutedsl:
    case Recipe::nvfp4_w4a4_cutlass:
      return w.codes.dtype == DType::e2m1 && has_blocks(w, {DType::e4m3}, 1, 16);
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return w.codes.dtype == DType::e2m1 && w.tensor_scale == 1.0f && has_blocks(w, {DType::e8m0}, 1, 32);
  }
  return false;
}

std::string_view expected_format(Recipe recipe) {
  switch (recipe) {
    case Recipe::f32:
      return "any format";
    case Recipe::bf16:
      return "bf16, f16 or f32 weights";
    case Recipe::fp8_tensor:
      return "e4m3 weights with one scale a matrix or an f32 scale a row";
    case Recipe::fp8_block:
      return "e4m3 weights with f32, bf16 or e8m0 scales of blocks of 128 columns, and no tensor scale";
    case Recipe::nvfp4_w4a16:
    case Recipe::nvfp4_w4a4_cutedsl:
    case Recipe::nvfp4_w4a4_cutlass:
      return "e2m1 weights with e4m3 scales of 1 x 16 blocks";
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return "e2m1 weights with e8m0 scales of 1 x 32 blocks, and no tensor scale";
  }
  return "";
}

// "e2m1 with e8m0 scales of 1 x 32 blocks"
std::string format_text(const QuantTensor& w) {
  std::string text(dtype_name(w.codes.dtype));
  const BlockScaleView& s = w.block_scale;
  if (s.data != nullptr) {
    text += " with " + std::string(dtype_name(s.dtype)) + " scales of " + std::to_string(s.block_rows) + " x " +
            std::to_string(s.block_cols) + " blocks";
  }
  if (w.tensor_scale != 1.0f) text += " and a tensor scale";
  return text;
}

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "runner: " + what, expected);
}

void check_output(const LayerSpec& layer, Recipe recipe, const RunArgs& args) {
  require((args.sum.data != nullptr) != (args.routes.data != nullptr), "sum and routes are both set or both missing",
          "exactly one of them");
  const bool sums = args.sum.data != nullptr;
  const TensorView& out = sums ? args.sum : args.routes;
  const std::int64_t rows = sums ? args.tokens() : args.tokens() * args.top_k;
  require(out.rows == rows && out.cols == layer.width(), "output has shape " + shape_text(out.rows, out.cols),
          shape_text(rows, layer.width()));
  const bool bf16_fits = sums || recipe_info(recipe).slot_dtype == DType::bf16;
  require(out.dtype == DType::f32 || (bf16_fits && out.dtype == DType::bf16),
          "output is " + std::string(dtype_name(out.dtype)), bf16_fits ? "bf16 or f32" : "f32");
}

void check_hidden(const LayerSpec& layer, Recipe recipe, const ConstTensorView& hidden) {
  const DType compute = recipe == Recipe::f32 ? DType::f32 : DType::bf16;
  require(hidden.dtype == compute && hidden.cols == layer.width(),
          "hidden rows are " + std::string(dtype_name(hidden.dtype)) + " of width " + std::to_string(hidden.cols),
          std::string(dtype_name(compute)) + " of width " + std::to_string(layer.width()));
}

void require_view(const ConstTensorView& view, std::string_view name, DType type, std::int64_t rows,
                  std::int64_t cols) {
  const bool fits = view.data != nullptr && view.dtype == type && view.rows == rows && view.cols == cols;
  require(fits,
          "quantised input: " + std::string(name) + " is " + std::string(dtype_name(view.dtype)) + " " +
              shape_text(view.rows, view.cols),
          std::string(dtype_name(type)) + " " + shape_text(rows, cols));
}

void check_quantized_rows(const LayerSpec& layer, Recipe recipe, const QuantizedRows& q) {
  const std::int64_t rows = q.codes.rows, width = layer.width();
  const auto blocks = [&](std::int64_t block) { return (width + block - 1) / block; };
  require(!layer.weight_on_input, "quantised input with weight_on_input", "plain rows");
  switch (recipe) {
    case Recipe::fp8_tensor:
      require_view(q.codes, "codes", DType::e4m3, rows, width);
      return require_view(q.sum_scales, "sum_scales", DType::f32, q.sum_scales.rows == 1 ? 1 : rows, 1);
    case Recipe::fp8_block:
      require_view(q.codes, "codes", DType::e4m3, rows, width);
      return require_view(q.sum_scales, "sum_scales", DType::f32, rows, blocks(128));
    case Recipe::nvfp4_w4a4_cutedsl:
    case Recipe::nvfp4_w4a4_cutlass:
      require(q.encode_scale > 0.0f, "quantised input: the encode scale is " + std::to_string(q.encode_scale),
              "448 * 6 / amax, above zero");
      require_view(q.codes, "codes", DType::e2m1, rows, width);
      return require_view(q.block_scales, "block_scales", DType::e4m3, rows, blocks(16));
    case Recipe::mxfp4_w4a8:
      require_view(q.codes, "codes", DType::e4m3, rows, width);
      return require_view(q.block_scales, "block_scales", DType::e8m0, rows, blocks(32));
    default:
      require(false, "quantised input in recipe " + std::string(recipe_info(recipe).name),
              "a recipe that quantises its input");
  }
}

void check_format_of(std::string_view list_name, const std::vector<QuantTensor>& list, Recipe recipe) {
  for (std::size_t e = 0; e < list.size(); ++e) {
    if (fits(recipe, list[e])) continue;
    fail(ErrorCode::unsupported,
         std::string(list_name) + " of expert " + std::to_string(e) + " is " + format_text(list[e]) + " in recipe " +
             std::string(recipe_info(recipe).name),
         std::string(expected_format(recipe)), "recipe f32 reads every format");
  }
}

}  // namespace

void check_formats(Recipe recipe, const ExpertWeights& weights) {
  check_format_of("gate", weights.gate, recipe);
  check_format_of("up", weights.up, recipe);
  check_format_of("down", weights.down, recipe);
}

void check_weights(const LayerSpec& layer, const ExpertWeights& weights) {
  const std::int64_t count = weights.count();
  const std::int64_t gates = is_gated(layer.activation.kind) ? count : 0;
  if (count == 0) fail(ErrorCode::bad_input, "a MoE layer has no experts", "at least one");
  check_matrices("gate", weights.gate, gates, layer.intermediate, layer.width());
  check_matrices("up", weights.up, count, layer.intermediate, layer.width());
  check_matrices("down", weights.down, count, layer.width(), layer.intermediate);
  check_biases("gate bias", weights.gate_bias, layer.has_bias ? gates : 0, layer.intermediate);
  check_biases("up bias", weights.up_bias, layer.has_bias ? count : 0, layer.intermediate);
  check_biases("down bias", weights.down_bias, layer.has_bias ? count : 0, layer.width());
}

void check_run_args(const LayerSpec& layer, Recipe recipe, std::int64_t local_experts, const RunArgs& args,
                    InputKinds kinds) {
  require(args.workspace != nullptr, "there is no workspace", "one with workspace_bytes() bytes");
  require(!args.quantized.codes || kinds == InputKinds::plain_or_quantized, "the input is quantised already",
          "plain rows, which this runner quantises itself");
  if (args.quantized.codes) {
    check_quantized_rows(layer, recipe, args.quantized);
  } else {
    check_hidden(layer, recipe, args.hidden);
  }
  require(args.top_k >= 1, "top_k is " + std::to_string(args.top_k), "at least 1");
  require(!layer.weight_on_input || args.top_k == 1, "weight_on_input with top_k " + std::to_string(args.top_k), "1");
  require(args.tokens() == 0 || (args.ids != nullptr && args.weights != nullptr), "ids or weights are missing",
          "[T, k] both");
  require(args.slots.count == local_experts, "the slot range has " + std::to_string(args.slots.count) + " slots",
          std::to_string(local_experts));
  if (args.tokens() != 0) check_output(layer, recipe, args);
}

}  // namespace sluice
