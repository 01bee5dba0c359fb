#include "moe/input_scales.h"

#include <algorithm>

#include "core/error.h"

namespace sluice {
namespace {

constexpr float kSmallestDivisor = 1e-12f;

float one_with_warning(std::string_view name, std::vector<std::string>* warnings) {
  if (warnings != nullptr) {
    warnings->push_back(std::string(name) + ": the checkpoint has no input scale; 1 is used for all experts");
  }
  return 1.0f;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void check_lengths(std::size_t a, std::size_t b, const std::string& what) {
  if (a == b) return;
  fail(ErrorCode::bad_input, what + " of " + std::to_string(a) + " and " + std::to_string(b) + " experts",
       "the same number of both");
}

[[noreturn]] void bad_shape(const ExpertTensor& tensor, const ExpertSplit& split, bool local_fits) {
  std::string expected = "a scalar";
  if (local_fits) expected += ", " + std::to_string(split.local()) + " experts (this rank)";
  expected += " or " + std::to_string(split.experts) + " experts (all ranks), in at most 2 columns";
  fail(ErrorCode::bad_input,
       std::string(tensor.name) + " has shape " + shape_text(tensor.shape) + " on rank " + std::to_string(split.rank) +
           " of " + std::to_string(split.ranks),
       expected);
}

void check_split(const ExpertSplit& split) {
  if (split.ranks >= 1 && split.rank >= 0 && split.rank < split.ranks && split.experts % split.ranks == 0) return;
  fail(ErrorCode::usage,
       std::to_string(split.experts) + " experts for rank " + std::to_string(split.rank) + " of " +
           std::to_string(split.ranks),
       "a number of experts that the ranks divide");
}

// The column of a tensor, one value a row.
std::vector<float> column_of(const ExpertTensor& tensor, ScaleColumn column, const ExpertSplit& split) {
  const auto& shape = tensor.shape;
  const std::int64_t rows = shape.empty() ? 1 : shape[0], cols = shape.size() == 2 ? shape[1] : 1;
  const bool fits = shape.size() <= 2 && rows >= 1 && (cols == 1 || cols == 2) &&
                    static_cast<std::int64_t>(tensor.values.size()) == rows * cols;
  if (!fits) bad_shape(tensor, split, true);
  const std::int64_t at = column == ScaleColumn::up && cols == 2 ? 1 : 0;
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) values.push_back(tensor.values[static_cast<std::size_t>(r * cols + at)]);
  return values;
}

}  // namespace

float shared_decode_scale(std::span<const float> scales, std::string_view name, std::vector<std::string>* warnings) {
  return scales.empty() ? one_with_warning(name, warnings) : *std::max_element(scales.begin(), scales.end());
}

float shared_encode_scale(std::span<const float> scales, std::string_view name, std::vector<std::string>* warnings) {
  return scales.empty() ? one_with_warning(name, warnings) : *std::min_element(scales.begin(), scales.end());
}

std::vector<float> gemm1_scale_of_each_expert(const InputScales& scales) {
  if (scales.gate.empty()) return scales.up;
  check_lengths(scales.gate.size(), scales.up.size(), "input scales of gate and up");
  std::vector<float> larger;
  for (std::size_t e = 0; e < scales.up.size(); ++e) larger.push_back(std::max(scales.gate[e], scales.up[e]));
  return larger;
}

LayerInputScales layer_input_scales(Recipe recipe, const InputScales& scales, std::vector<std::string>* warnings) {
  if (!uses_static_input_scales(recipe)) return {};
  const std::vector<float> gemm1 = gemm1_scale_of_each_expert(scales);
  if (recipe == Recipe::fp8_tensor && (gemm1.empty() || scales.down.empty())) return {};
  return {shared_decode_scale(gemm1, "gate and up", warnings), shared_decode_scale(scales.down, "down", warnings)};
}

std::vector<float> alphas(std::span<const float> weight_scales, float used_encode) {
  std::vector<float> out;
  for (const float scale : weight_scales) out.push_back(scale / std::max(used_encode, kSmallestDivisor));
  return out;
}

std::vector<float> alphas_from_stated(std::span<const float> stated, std::span<const float> own_encode,
                                      float used_encode) {
  check_lengths(stated.size(), own_encode.size(), "alphas and input scales");
  std::vector<float> out;
  for (std::size_t e = 0; e < stated.size(); ++e) {
    out.push_back(stated[e] * own_encode[e] / std::max(used_encode, kSmallestDivisor));
  }
  return out;
}

std::vector<float> local_scales(const ExpertTensor& tensor, ScaleColumn column, const ExpertSplit& split) {
  check_split(split);
  std::vector<float> values = column_of(tensor, column, split);
  const auto rows = static_cast<std::int64_t>(values.size()), local = split.local();
  if (rows == 1) return std::vector<float>(static_cast<std::size_t>(local), values[0]);
  if (rows == local) return values;
  if (rows != split.experts) bad_shape(tensor, split, true);
  return {values.begin() + split.rank * local, values.begin() + (split.rank + 1) * local};
}

std::vector<float> global_scales(const ExpertTensor& tensor, ScaleColumn column, const ExpertSplit& split) {
  check_split(split);
  std::vector<float> values = column_of(tensor, column, split);
  const auto rows = static_cast<std::int64_t>(values.size());
  if (rows == 1) return std::vector<float>(static_cast<std::size_t>(split.experts), values[0]);
  if (rows != split.experts) bad_shape(tensor, split, false);
  return values;
}

}  // namespace sluice
