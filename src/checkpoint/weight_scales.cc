// The part of WeightReader that reads scales: everything a wrong scale of a tensor can be is found here; grids of block
// scales are searched in scale_checks.cc.
#include <fmt/core.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "checkpoint/messages.h"
#include "checkpoint/scale_values.h"
#include "checkpoint/weight_reader.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

// In the place of an input scale that the file lacks, and of one that the policy replaces.
constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
constexpr float kInvalid = -1.0f;

bool is_scale(float v) { return v > 0.0f; }

// Scalars are stored as [], [1] or [1, 1], and grids with dimensions of 1 in between.
std::vector<std::int64_t> without_units(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](std::int64_t n) { return n != 1; });
  return out;
}

// Where element `i` of a tensor is.
std::string place_text(const TensorEntry& tensor, std::int64_t i) {
  std::vector<std::int64_t> place(tensor.shape.size());
  for (std::size_t d = place.size(); d-- > 0; i /= tensor.shape[d]) place[d] = i % tensor.shape[d];
  return place.empty() ? "" : " " + shape_text(place);
}

// The scale 2^125 of 32 4-bit codes, whose largest value is 6. Values under larger ones are beyond bf16.
constexpr std::uint8_t kMostMxfp4 = 127 + 125;

std::string bad_text(const std::byte* data, DType type, std::int64_t i) {
  if (type == DType::e8m0) {
    const auto code = std::to_integer<int>(data[i]);
    return code == 0xFF ? "NaN" : fmt::format("2^{}, which puts weights beyond bf16", code - 127);
  }
  if (type != DType::e4m3) return std::string(fault_name(fault_of(float_at(data, type, i))));
  return (std::to_integer<unsigned>(data[i]) & 0x7Fu) == 0x7Fu ? "NaN" : "negative";
}

std::string experts_text(const std::vector<float>& scales) {
  std::vector<std::string> missing;
  for (std::size_t e = 0; e < scales.size(); ++e) {
    if (!is_scale(scales[e])) missing.push_back(std::to_string(e));
  }
  return fmt::format("{} of {} experts have no valid input scale: {}", missing.size(), scales.size(),
                     first_few(missing));
}

std::string_view hint_for(ScaleFault fault, bool of_input) {
  if (fault == ScaleFault::denormal) return "--scale-policy clamp-denormal takes the smallest normal number instead";
  if (!of_input) return "the weight cannot be repaired; fetch or quantise it again";
  return "--scale-policy fill-invalid takes the largest of the layer, weight-only ignores input scales";
}

}  // namespace

void WeightReader::set_block_scales(const WeightRequest& request, const TensorEntry& tensor, std::int64_t rows,
                                    std::int64_t cols, std::initializer_list<DType> types, StoredWeight& out) {
  const bool exponents = std::find(types.begin(), types.end(), DType::e8m0) != types.end();
  const DType type = exponents && tensor.dtype == DType::u8 ? DType::e8m0 : tensor.dtype;
  if (type == tensor.dtype) tensors_.check_dtype(tensor, types);
  const std::int64_t grid_rows = (request.outputs + rows - 1) / rows;
  const std::int64_t grid_cols = (request.inputs + cols - 1) / cols;
  std::vector<std::int64_t> shape = {grid_rows, grid_cols};
  if (request.transposed) std::swap(shape[0], shape[1]);
  if (request.experts > 0) shape.insert(shape.begin(), request.experts);
  if (without_units(tensor.shape) != without_units(shape)) tensors_.check_shape(tensor, shape);
  const std::byte* data = data_of(request, tensor);
  const std::uint8_t most = rows == 1 ? kMostMxfp4 : ScaleGrid().most;
  if (options_.block_scales) check_scale_grid({request, &tensor, data, type, most});
  out.whole.block_scale = {
      data, type, rows, cols, request.transposed ? 1 : grid_cols, request.transposed ? grid_rows : 1};
  out.scale_step = grid_rows * grid_cols;
}

void WeightReader::set_channel_scales(const WeightRequest& request, const TensorEntry& tensor, StoredWeight& out) {
  tensors_.check_dtype(tensor, {DType::f32, DType::bf16, DType::f16});
  const std::int64_t count = request.matrices() * request.outputs;
  const std::vector<std::int64_t> shape = {request.matrices(), request.outputs};
  if (without_units(tensor.shape) != without_units(shape)) tensors_.check_shape(tensor, shape);
  const std::byte* data = data_of(request, tensor);
  const void* floats = data;
  if (options_.block_scales && !request.elsewhere) {
    check_scale_grid({request, &tensor, data, tensor.dtype});
    bool is_new = false;
    float* own = tensor.dtype == DType::f32 ? nullptr : tensors_.own_floats(tensor, count, is_new);
    if (own != nullptr) floats = own;
    is_new |= !request.held.empty();  // an earlier call may have wanted other experts
    for (std::int64_t m = 0; own != nullptr && is_new && m < request.matrices(); ++m) {
      if (!request.holds(m)) continue;
      for (std::int64_t i = m * request.outputs; i < (m + 1) * request.outputs; ++i) {
        own[i] = float_at(data, tensor.dtype, i);
      }
    }
  }
  out.whole.block_scale = {floats, DType::f32, 1, request.inputs, 1, 1};
  out.scale_step = request.outputs;
}

void WeightReader::check_scale_grid(const ScaleGrid& grid) {
  if (grid.request.elsewhere) return;
  unchecked_.push_back(grid);
  if (options_.pool == nullptr || options_.findings != nullptr) finish_checks();
}

void WeightReader::finish_checks() {
  ScaleChecks checks(std::exchange(unchecked_, {}));
  finish(checks);
}

std::shared_ptr<ScaleChecks> WeightReader::leave_checks() {
  if (left_ != nullptr) fail(ErrorCode::usage, "checks of a layer's scales", "finish_checks() of the layer before");
  left_ = std::make_shared<ScaleChecks>(std::exchange(unchecked_, {}));
  return left_;
}

void WeightReader::finish_left_checks() {
  const std::shared_ptr<ScaleChecks> checks = std::exchange(left_, nullptr);
  if (checks != nullptr) finish(*checks);
}

void WeightReader::finish(ScaleChecks& checks) const {
  const ScaleChecks::Fault fault = checks.finish(options_.pool);
  if (fault.grid != nullptr) fail_scale(*fault.grid, fault.index);
}

void WeightReader::fail_scale(const ScaleGrid& grid, std::int64_t bad) const {
  tensors_.fail_tensor(FindingKind::scale, *grid.tensor,
                       fmt::format("scale{} is {}", place_text(*grid.tensor, bad), bad_text(grid.data, grid.type, bad)),
                       "a positive number", std::string(hint_for(ScaleFault::nan, false)));
}

Scalars WeightReader::tensor_scales(const WeightRequest& request, const TensorEntry& tensor, ScaleMeaning meaning) {
  tensors_.check_dtype(tensor, {DType::f32, DType::bf16, DType::f16});
  const bool of_input =
      part_name(tensor.name).part == Part::input_scale || part_name(tensor.name).part == Part::input_global_scale;
  const std::int64_t count = elements_of(tensor);
  if (count != 1 && count != request.matrices() && count != request.matrices() * request.halves) {
    const std::vector<std::int64_t> one = {request.matrices()};
    tensors_.check_shape(tensor, one);
  }
  Scalars out;
  if (request.elsewhere && !of_input) {
    tensors_.mark_used_elsewhere(tensor);
    return out;
  }
  const std::int64_t per_expert = std::max<std::int64_t>(count / request.matrices(), 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool wanted = of_input || count == 1 || request.holds(i / per_expert);
    out.values.push_back(wanted ? scale_value(request, tensor, i, meaning, of_input) : kMissing);
  }
  return out;
}

float WeightReader::scale_value(const WeightRequest& request, const TensorEntry& tensor, std::int64_t index,
                                ScaleMeaning meaning, bool of_input) {
  float stored = float_at(tensors_.use(tensor, request.layer), tensor.dtype, index);
  const auto decoded = [&] { return meaning == ScaleMeaning::reciprocal ? 1.0f / stored : stored; };
  ScaleFault fault = fault_of(stored);
  if (fault == ScaleFault::denormal && options_.scales.clamp_denormal) {
    stored = FLT_MIN;
    note(Severity::warning, FindingKind::scale, tensor, "denormal scales became 2^-126 (clamp-denormal)");
    fault = ScaleFault::none;
  }
  float value = decoded();
  if (fault == ScaleFault::none) fault = fault_of(value);
  if (fault == ScaleFault::denormal && options_.scales.clamp_denormal) {
    value = FLT_MIN;
    note(Severity::warning, FindingKind::scale, tensor, "denormal scales became 2^-126 (clamp-denormal)");
    fault = ScaleFault::none;
  }
  if (fault == ScaleFault::none) return value;
  if (of_input && options_.scales.fill_invalid && fault != ScaleFault::denormal) return kInvalid;
  std::string whose = request.expert >= 0 ? fmt::format("expert {}: ", request.expert) : "";
  const std::int64_t per_expert = std::max<std::int64_t>(elements_of(tensor) / request.matrices(), 1);
  if (request.experts > 0 && elements_of(tensor) > 1) whose = fmt::format("expert {}: ", index / per_expert);
  tensors_.fail_tensor(FindingKind::scale, tensor, fmt::format("{}the scale is {}", whose, fault_name(fault)),
                       "a positive normal number", std::string(hint_for(fault, of_input)));
}

bool WeightReader::file_has_input_scales(const WeightRequest& request) {
  const auto is_of_expert = [](std::string_view name) { return name.find(".experts.") != std::string_view::npos; };
  const bool expert = is_of_expert(request.parts->module);
  const auto [known, is_new] = has_input_scales_.emplace(expert, false);
  if (!is_new) return known->second;
  for (const TensorEntry* tensor : tensors_.checkpoint().tensors()) {
    const Part part = part_name(tensor->name).part;
    if (part != Part::input_scale && part != Part::input_global_scale) continue;
    known->second |= is_of_expert(tensor->name) == expert;
  }
  return known->second;
}

InputScaling WeightReader::scaling_of(const WeightRequest& request, bool present) {
  if (options_.scales.weight_only) return InputScaling::none;
  const QuantRule* rule = description_of(*request.parts).rule;
  const InputScaling said = rule == nullptr ? InputScaling::unknown : rule->inputs;
  if (said != InputScaling::unknown) return said;
  return present || file_has_input_scales(request) ? InputScaling::fixed : InputScaling::none;
}

Scalars WeightReader::input_scales(const WeightRequest& request, Part part, ScaleMeaning meaning) {
  const TensorEntry* tensor = (*request.parts)[part];
  const InputScaling scaling = scaling_of(request, tensor != nullptr);
  if (scaling != InputScaling::fixed) {
    if (tensor == nullptr) return {};
    tensors_.mark_used(*tensor, request.layer);
    note(Severity::info, FindingKind::scale, *tensor,
         options_.scales.weight_only ? "input scales are ignored (--scale-policy weight-only)"
                                     : "input scales are ignored, as " + config_.description() + " says");
    return {};
  }
  if (tensor != nullptr) return tensor_scales(request, *tensor, meaning);
  if (!file_has_input_scales(request)) {
    tensors_.fail_tensor(FindingKind::conflict, *request.parts->codes(), "there is no input scale in the checkpoint",
                         "fixed input scales, as " + config_.description() + " says",
                         "--scale-policy weight-only runs it without");
  }
  Scalars out;
  out.values.assign(static_cast<std::size_t>(request.matrices()), kMissing);
  return out;
}

void WeightReader::complete_input_scales(std::int64_t layer, const std::string& name, std::vector<float>& scales) {
  if (std::all_of(scales.begin(), scales.end(), is_scale)) return;
  float largest = 0.0f;
  for (const float scale : scales) largest = is_scale(scale) ? std::max(largest, scale) : largest;
  const bool absent = std::any_of(scales.begin(), scales.end(), [](float s) { return std::isnan(s); });
  const std::string text = fmt::format("layer {}, {}: {}", layer, quote(name), experts_text(scales));
  if ((options_.scales.fill_missing || !absent) && is_scale(largest)) {
    for (float& scale : scales) scale = is_scale(scale) ? scale : largest;
    oddities_.add({Severity::warning,
                   FindingKind::scale,
                   fmt::format("{}; they got the largest of the layer, {:g}", text, largest),
                   name,
                   "",
                   1,
                   {}});
    return;
  }
  throw TensorError(ErrorCode::bad_input, FindingKind::missing, "", name,
                    error_text(fmt::format("{}: {}", tensors_.checkpoint().folder(), text), "one for every expert",
                               "--scale-policy fill-missing takes the largest of the layer, weight-only ignores them"));
}

}  // namespace sluice::ckpt
