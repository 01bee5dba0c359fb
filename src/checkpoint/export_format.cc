#include "checkpoint/export_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "numerics/block_fp8.h"
#include "numerics/block_nvfp4.h"

namespace sluice::ckpt {
namespace {

constexpr std::array<std::string_view, 5> kFormatNames = {"bf16", "fp8", "fp8-block", "nvfp4", "mxfp4"};
constexpr std::array<std::string_view, 5> kDialectNames = {"plain", "modelopt", "compressed-tensors", "deepseek",
                                                           "gpt-oss"};
constexpr std::string_view kGptOssFamily = "gpt_oss";

// The pairs that readers know, the usual dialect of a format first. `needs` narrows a pair down.
struct Pair {
  ExportFormat format;
  ExportDialect dialect;
  enum class Needs : std::uint8_t { nothing, calibration, no_calibration, gpt_oss, other_family } needs;
};
constexpr Pair kPairs[] = {
    {ExportFormat::bf16, ExportDialect::plain, Pair::Needs::no_calibration},
    {ExportFormat::fp8, ExportDialect::modelopt, Pair::Needs::calibration},
    {ExportFormat::fp8, ExportDialect::compressed_tensors, Pair::Needs::nothing},
    {ExportFormat::fp8_block, ExportDialect::deepseek, Pair::Needs::no_calibration},
    {ExportFormat::fp8_block, ExportDialect::compressed_tensors, Pair::Needs::no_calibration},
    {ExportFormat::nvfp4, ExportDialect::modelopt, Pair::Needs::nothing},
    {ExportFormat::nvfp4, ExportDialect::compressed_tensors, Pair::Needs::nothing},
    {ExportFormat::mxfp4, ExportDialect::gpt_oss, Pair::Needs::gpt_oss},
    {ExportFormat::mxfp4, ExportDialect::compressed_tensors, Pair::Needs::other_family},
};

std::string describe(const Pair& pair) {
  std::string text = fmt::format("--format {}", kFormatNames[static_cast<std::size_t>(pair.format)]);
  if (pair.dialect != ExportDialect::plain) text += fmt::format(" --dialect {}", dialect_name(pair.dialect));
  switch (pair.needs) {
    case Pair::Needs::calibration:
      return text + " --calibrate FILE (its input scales are static)";
    case Pair::Needs::no_calibration:
      return text + " without --calibrate (no input scales are stored)";
    case Pair::Needs::gpt_oss:
      return text + " for models of the gpt_oss family";
    case Pair::Needs::other_family:
      return text + " for models of other families than gpt_oss";
    case Pair::Needs::nothing:
      break;
  }
  return text;
}

bool fits(const Pair& pair, bool calibrated, std::string_view family) {
  switch (pair.needs) {
    case Pair::Needs::calibration:
      return calibrated;
    case Pair::Needs::no_calibration:
      return !calibrated;
    case Pair::Needs::gpt_oss:
      return !calibrated && family == kGptOssFamily;
    case Pair::Needs::other_family:
      return !calibrated && family != kGptOssFamily;
    case Pair::Needs::nothing:
      break;
  }
  return true;
}

template <class Names>
std::size_t index_of(const Names& names, std::string_view name, std::string_view flag, std::size_t first) {
  const auto at = std::find(names.begin() + static_cast<std::ptrdiff_t>(first), names.end(), name);
  if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  std::string list;
  for (std::size_t i = first; i < names.size(); ++i) list += (i == first ? "" : ", ") + std::string(names[i]);
  fail(ErrorCode::usage, fmt::format("{} {}", flag, name.empty() ? "\"\"" : name), "one of " + list);
}

[[noreturn]] void refuse(const ExportRequest& request, ExportFormat format, std::string_view family) {
  std::string working;
  for (const Pair& pair : kPairs) {
    if (pair.format == format) working += (working.empty() ? "" : "; ") + describe(pair);
  }
  fail(ErrorCode::unsupported,
       fmt::format("--format {}{}{} for a model of the {} family", request.format,
                   request.dialect.empty() ? "" : " --dialect " + request.dialect,
                   request.calibrated ? " --calibrate" : " without --calibrate", family),
       "one of: " + working);
}

MxScale mx_scale_of(const ExportRequest& request, ExportFormat format) {
  if (request.mx_scale.empty() || request.mx_scale == "ceil") return MxScale::round_up;
  if (request.mx_scale != "ocp") fail(ErrorCode::usage, "--mx-scale " + request.mx_scale, "ceil or ocp");
  if (format != ExportFormat::mxfp4) {
    fail(ErrorCode::usage, "--mx-scale ocp with --format " + request.format, "--format mxfp4");
  }
  return MxScale::ocp_floor;
}

std::int64_t blocks(std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block; }

// ModelOpt writes scalars without a dimension, compressed-tensors with one.
std::vector<std::int64_t> scalar_shape(ExportDialect dialect) {
  return dialect == ExportDialect::modelopt ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1};
}

void add_fp4(ModuleTensors& out, const ExportTarget& target, const std::string& base, std::int64_t rows,
             std::int64_t cols) {
  const bool packed_name = target.dialect == ExportDialect::compressed_tensors;
  const std::int64_t group = block_format_info(target.block_format()).block_cols;
  const bool nvfp4 = target.format == ExportFormat::nvfp4;
  out.codes = {base + (packed_name ? ".weight_packed" : ".weight"), DType::u8, {rows, blocks(cols, 2)}};
  out.block_scale = {base + ".weight_scale", nvfp4 ? DType::e4m3 : DType::u8, {rows, blocks(cols, group)}};
  if (!nvfp4) return;
  const std::vector<std::int64_t> scalar = scalar_shape(target.dialect);
  out.tensor_scale = {base + (packed_name ? ".weight_global_scale" : ".weight_scale_2"), DType::f32, scalar};
  if (target.static_inputs) {
    out.input_scale = {base + (packed_name ? ".input_global_scale" : ".input_scale"), DType::f32, scalar};
  }
}

void add_fp8(ModuleTensors& out, const ExportTarget& target, const std::string& base, std::int64_t rows,
             std::int64_t cols) {
  const std::vector<std::int64_t> scalar = scalar_shape(target.dialect);
  out.codes = {base + ".weight", DType::e4m3, {rows, cols}};
  switch (target.block_format()) {
    case BlockFormat::fp8_block:
      out.block_scale = {base + (target.dialect == ExportDialect::deepseek ? ".weight_scale_inv" : ".weight_scale"),
                         DType::f32,
                         {blocks(rows, 128), blocks(cols, 128)}};
      break;
    case BlockFormat::fp8_row:
      out.block_scale = {base + ".weight_scale", DType::f32, {rows, 1}};
      break;
    default:
      out.tensor_scale = {base + ".weight_scale", DType::f32, scalar};
  }
  if (target.static_inputs) out.input_scale = {base + ".input_scale", DType::f32, scalar};
}

bool round_trips(float s) { return 1.0f / (1.0f / s) == s; }

}  // namespace

std::string_view format_name(ExportFormat format) { return kFormatNames.at(static_cast<std::size_t>(format)); }
std::string_view dialect_name(ExportDialect dialect) { return kDialectNames.at(static_cast<std::size_t>(dialect)); }

BlockFormat ExportTarget::block_format() const {
  switch (format) {
    case ExportFormat::fp8:
      return static_inputs ? BlockFormat::fp8_tensor : BlockFormat::fp8_row;
    case ExportFormat::fp8_block:
      return BlockFormat::fp8_block;
    case ExportFormat::nvfp4:
      return BlockFormat::nvfp4;
    default:
      return BlockFormat::mxfp4;
  }
}

bool ExportTarget::has_joint_scale() const { return !is_plain() && block_format_info(block_format()).has_tensor_scale; }

ExportTarget resolve_target(const ExportRequest& request, std::string_view family) {
  ExportTarget target;
  target.format = static_cast<ExportFormat>(index_of(kFormatNames, request.format, "--format", 0));
  target.mx_scale = mx_scale_of(request, target.format);
  target.static_inputs = request.calibrated;
  const bool any_dialect = request.dialect.empty();
  const auto wanted = any_dialect
                          ? ExportDialect::plain
                          : static_cast<ExportDialect>(index_of(kDialectNames, request.dialect, "--dialect", 1));
  for (const Pair& pair : kPairs) {
    if (pair.format != target.format || (!any_dialect && pair.dialect != wanted)) continue;
    if (!fits(pair, request.calibrated, family)) continue;
    target.dialect = pair.dialect;
    return target;
  }
  refuse(request, target.format, family);
}

ModuleTensors module_tensors(const ExportTarget& target, std::string_view base, std::int64_t rows, std::int64_t cols) {
  ModuleTensors out;
  const std::string name(base);
  if (target.is_plain()) {
    out.codes = {name + ".weight", DType::bf16, {rows, cols}};
  } else if (target.format == ExportFormat::nvfp4 || target.format == ExportFormat::mxfp4) {
    add_fp4(out, target, name, rows, cols);
  } else {
    add_fp8(out, target, name, rows, cols);
  }
  return out;
}

void check_columns(const ExportTarget& target, std::string_view base, std::int64_t cols) {
  if (target.format != ExportFormat::nvfp4 && target.format != ExportFormat::mxfp4) return;
  const std::int64_t group = block_format_info(target.block_format()).block_cols;
  if (cols % group == 0) return;
  fail(ErrorCode::unsupported, fmt::format("{}: {} inputs in {}", base, cols, format_name(target.format)),
       fmt::format("a multiple of {}", group), "fp8 and fp8-block take any size");
}

float stored_tensor_scale(const ExportTarget& target, float scale) {
  const bool reciprocal = target.dialect == ExportDialect::compressed_tensors && target.format == ExportFormat::nvfp4;
  return reciprocal ? 1.0f / scale : scale;
}

float stored_input_scale(const ExportTarget& target, float scale) { return stored_tensor_scale(target, scale); }

float round_trip_scale(float scale) {
  float above = scale;
  float below = scale;
  for (int step = 0; step < 16; ++step) {  // neighbours that survive are never more than a few steps away
    if (round_trips(above)) return above;
    if (round_trips(below)) return below;
    above = std::nextafter(above, INFINITY);
    below = std::nextafter(below, 0.0f);
  }
  return scale;
}

float tensor_scale_of(const ExportTarget& target, float amax) {
  return target.format == ExportFormat::nvfp4 ? round_trip_scale(1.0f / nvfp4_encode_scale(amax)) : fp8_scale(amax);
}

float input_scale_of(const ExportTarget& target, float amax) {
  return amax == 0.0f ? 1.0f : tensor_scale_of(target, amax);
}

}  // namespace sluice::ckpt
