#include "checkpoint/weight_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "checkpoint/messages.h"

namespace sluice::ckpt {
namespace {

bool is_of_expert(const WeightRequest& request) { return request.experts > 0 || request.expert >= 0; }

std::string_view parent(std::string_view module) {
  return module.substr(0, std::min(module.rfind('.'), module.size()));
}

bool same_convention(BlockFormat a, BlockFormat b) {
  const auto one_scale = [](BlockFormat f) { return f == BlockFormat::fp8_tensor || f == BlockFormat::fp8_row; };
  return a == b || (one_scale(a) && one_scale(b));
}

// Which spellings go with a description. What FP8 tensors look like is common to all that have them.
bool may_use(QuantMethod method, std::string_view dialect, const QuantRule* rule) {
  switch (method) {
    case QuantMethod::none:
      return true;
    case QuantMethod::modelopt:
      return dialect != "compressed-tensors";
    case QuantMethod::compressed_tensors:
      return dialect == "compressed-tensors" || dialect == "fp8";
    case QuantMethod::fp8:
      return dialect == "fp8" || dialect == "mxfp4" ||
             (dialect == "modelopt" && rule != nullptr && rule->format == BlockFormat::nvfp4);
    case QuantMethod::mxfp4:
      return dialect == "mxfp4";
  }
  return false;
}

}  // namespace

WeightReader::WeightReader(TensorReader& tensors, const QuantConfig& config, const SchemeOptions& options)
    : tensors_(tensors), config_(config), options_(options) {}

StoredWeight WeightReader::read(const WeightRequest& request) {
  const ModuleParts& parts = *request.parts;
  for (const Dialect* dialect : dialects()) {
    if (!dialect->claims(parts)) continue;
    const std::optional<BlockFormat> format = dialect->format(parts, config_);
    check_description(request, *dialect, format);
    return dialect->read(*this, request);
  }
  tensors_.check_dtype(*parts.codes(), {DType::bf16, DType::f16, DType::f32});
  tensors_.fail_tensor(FindingKind::unsupported, *parts.codes(), "no dialect reads it", "scales beside it");
}

std::optional<BlockFormat> WeightReader::format_of(const ModuleParts& parts) const {
  for (const Dialect* dialect : dialects()) {
    if (dialect->claims(parts)) return dialect->format(parts, config_);
  }
  return std::nullopt;
}

void WeightReader::note(Severity severity, FindingKind kind, const TensorEntry& tensor, const std::string& text) {
  oddities_.add({severity, kind, text, tensor.name, tensors_.checkpoint().file_of(tensor), 1, {}});
}

void WeightReader::check_description(const WeightRequest& request, const Dialect& dialect,
                                     std::optional<BlockFormat> format) {
  if (config_.method() == QuantMethod::none) return;
  const ModuleParts& parts = *request.parts;
  const TensorEntry& codes = *parts.codes();
  const Described& described = description_of(parts);
  const bool excluded = described.excluded || (request.experts > 0 && config_.excludes(parent(parts.module)));
  const QuantRule* rule = excluded ? nullptr : described.rule;
  if (!format) {
    if (rule == nullptr || !is_of_expert(request)) return;
    note(Severity::info, FindingKind::conflict, codes,
         fmt::format("experts are stored as {} although {} does not exclude them; the tensors count",
                     dtype_name(codes.dtype), config_.description()));
    return;
  }
  if (rule == nullptr) {
    note(excluded ? Severity::warning : Severity::info, FindingKind::conflict, codes,
         fmt::format("weights are stored as {} although {} {} them; the tensors count", block_format_info(*format).name,
                     config_.description(), excluded ? "excludes" : "does not list"));
  }
  check_conventions(request, dialect, format, rule);
}

const WeightReader::Described& WeightReader::description_of(const ModuleParts& parts) {
  if (described_.parts == &parts) return described_;
  const bool excluded = config_.excludes(parts.module);
  described_ = {&parts, excluded, excluded ? nullptr : config_.rule_of_included(parts.module)};
  return described_;
}

void WeightReader::check_conventions(const WeightRequest& request, const Dialect& dialect,
                                     std::optional<BlockFormat> format, const QuantRule* rule) const {
  const TensorEntry& codes = *request.parts->codes();
  const BlockFormatInfo& info = block_format_info(*format);
  if (!may_use(config_.method(), dialect.name, rule)) {
    tensors_.fail_tensor(FindingKind::conflict, codes,
                         fmt::format("it and its scales are named as {} names them", dialect.name),
                         "the names of " + config_.description(),
                         "the meaning of the scales depends on it: correct the description or the names");
  }
  if (rule == nullptr) return;
  if (rule->format && !same_convention(*rule->format, *format)) {
    tensors_.fail_tensor(FindingKind::conflict, codes, fmt::format("stored as {}", info.name),
                         fmt::format("{}, as {} says", block_format_info(*rule->format).name, rule->where),
                         "correct the description or fetch the right weights");
  }
  if (rule->block_cols == 0 || !info.has_block_scale) return;
  if (rule->block_cols == info.block_cols && rule->block_rows == info.block_rows) return;
  tensors_.fail_tensor(*format == BlockFormat::fp8_block ? FindingKind::unsupported : FindingKind::conflict, codes,
                       fmt::format("blocks of {} x {}, as {} says", rule->block_rows, rule->block_cols, rule->where),
                       fmt::format("{} x {}, the blocks of {}", info.block_rows, info.block_cols, info.name));
}

const TensorEntry& WeightReader::require_part(const WeightRequest& request, Part part) const {
  const TensorEntry* tensor = (*request.parts)[part];
  if (tensor != nullptr) return *tensor;
  constexpr std::string_view kNames[] = {"weight",       "weight_packed",      "blocks",          "scales",
                                         "weight_scale", "weight_scale_inv",   "weight_scale_2",  "weight_global_scale",
                                         "input_scale",  "input_global_scale", "pre_quant_scale", "weight_zero_point",
                                         "weight_shape"};
  static_assert(std::size(kNames) == kParts);
  const std::string_view module = request.parts->module;
  const std::string_view name = kNames[static_cast<std::size_t>(part)];
  // Packed blocks of GPT-OSS are "m_blocks" and "m_scales"; everyone else writes "m.weight_scale".
  const char* joint = request.parts->codes()->name.ends_with("_blocks") ? "_" : ".";
  tensors_.fail_tensor(FindingKind::missing, *request.parts->codes(),
                       fmt::format("its scale {} is missing", quote(fmt::format("{}{}{}", module, joint, name))),
                       "all scales of a quantised weight",
                       "the export was incomplete, or a shard belongs to another checkpoint");
}

const std::byte* WeightReader::data_of(const WeightRequest& request, const TensorEntry& tensor) {
  if (!request.elsewhere) return tensors_.use(tensor, request.layer);
  tensors_.mark_used_elsewhere(tensor);
  return tensor.data;
}

void WeightReader::set_codes(const WeightRequest& request, const TensorEntry& tensor, StoredWeight& out) {
  std::vector<std::int64_t> shape = {request.outputs, request.inputs};
  if (request.transposed) std::swap(shape[0], shape[1]);
  if (request.experts > 0) shape.insert(shape.begin(), request.experts);
  // A vector may be stored as one.
  const bool vector = request.experts == 0 && request.outputs == 1 && tensor.shape.size() == 1;
  tensors_.check_shape(tensor, std::span(shape).last(vector ? 1 : shape.size()));
  out.whole.codes = {data_of(request, tensor),
                     tensor.dtype,
                     request.outputs,
                     request.inputs,
                     request.transposed ? 1 : request.inputs,
                     request.transposed ? request.outputs : 1};
  out.code_step = request.outputs * request.inputs;
}

void WeightReader::set_packed_codes(const WeightRequest& request, const TensorEntry& tensor,
                                    const std::vector<std::int64_t>& inner, StoredWeight& out) {
  tensors_.check_dtype(tensor, {DType::u8, DType::i8, DType::e2m1});
  if (request.transposed) {
    tensors_.fail_tensor(FindingKind::unsupported, tensor, "4-bit codes stored [inputs, outputs]",
                         "two codes of one output in a byte");
  }
  std::vector<std::int64_t> shape = {request.outputs};
  if (request.experts > 0) shape.insert(shape.begin(), request.experts);
  shape.insert(shape.end(), inner.begin(), inner.end());
  if (tensor.dtype == DType::e2m1) shape.back() *= 2;
  tensors_.check_shape(tensor, shape);
  const std::int64_t row = std::accumulate(inner.begin(), inner.end(), std::int64_t{2}, std::multiplies<>());
  out.whole.codes = {data_of(request, tensor), DType::e2m1, request.outputs, request.inputs, row, 1};
  out.code_step = request.outputs * row;
}

}  // namespace sluice::ckpt
