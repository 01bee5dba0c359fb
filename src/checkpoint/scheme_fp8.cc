#include "checkpoint/scheme_fp8.h"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/messages.h"
#include "checkpoint/scale_values.h"
#include "checkpoint/source.h"

namespace sluice::ckpt {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMxGroup = 32;

bool claims(const ModuleParts& parts) {
  return parts.has(Part::weight) &&
         (parts[Part::weight]->dtype == DType::e4m3 || parts[Part::weight]->dtype == DType::e5m2);
}

const TensorEntry* scale_of(const ModuleParts& parts) {
  return parts.has(Part::scale_inv) ? parts[Part::scale_inv] : parts[Part::scale];
}

std::int64_t blocks(std::int64_t extent) { return (extent + kBlock - 1) / kBlock; }

// The number of scales tells what one is for. Where two readings fit (a matrix of a single block), the name
// weight_scale_inv or a description that says so means blocks.
std::optional<BlockFormat> format(const ModuleParts& parts, const QuantConfig& config) {
  const TensorEntry& weight = *parts[Part::weight];
  const TensorEntry* scale = scale_of(parts);
  if (scale == nullptr || weight.shape.size() < 2) return BlockFormat::fp8_tensor;
  const std::size_t rank = weight.shape.size();
  const std::int64_t experts = rank == 3 ? weight.shape[0] : 1;
  const std::int64_t rows = weight.shape[rank - 2], cols = weight.shape[rank - 1];
  const std::int64_t count = elements_of(*scale);
  const bool fits_blocks = count == experts * blocks(rows) * blocks(cols);
  const QuantRule* rule = config.rule_for(parts.module);
  const bool means_blocks = parts.has(Part::scale_inv) || (rule != nullptr && rule->format == BlockFormat::fp8_block);
  if (fits_blocks && means_blocks) return BlockFormat::fp8_block;
  if (count == 1 || count == experts || count == 2 * experts) return BlockFormat::fp8_tensor;
  // Stacked experts may be stored transposed, with their outputs last.
  if (count == experts * rows || (rank == 3 && count == experts * cols)) return BlockFormat::fp8_row;
  if (fits_blocks) return BlockFormat::fp8_block;
  if (count == experts * rows * ((cols + kMxGroup - 1) / kMxGroup)) return BlockFormat::mxfp8;
  return means_blocks ? BlockFormat::fp8_block : BlockFormat::fp8_tensor;
}

StoredWeight read(WeightReader& reader, const WeightRequest& request) {
  const ModuleParts& parts = *request.parts;
  const TensorEntry& weight = *parts[Part::weight];
  reader.tensors().check_dtype(weight, {DType::e4m3});
  StoredWeight out;
  out.format = format(parts, reader.config());
  reader.set_codes(request, weight, out);
  if (parts.has(Part::scale) && parts.has(Part::scale_inv)) {
    reader.tensors().fail_tensor(FindingKind::conflict, weight, "both weight_scale and weight_scale_inv lie beside it",
                                 "one of them");
  }
  const TensorEntry& scale = scale_of(parts) != nullptr ? *scale_of(parts) : reader.require_part(request, Part::scale);
  if (out.format == BlockFormat::fp8_block) {
    reader.set_block_scales(request, scale, kBlock, kBlock, {DType::f32, DType::bf16, DType::e8m0}, out);
  } else if (out.format == BlockFormat::fp8_row) {
    reader.set_channel_scales(request, scale, out);
  } else if (out.format == BlockFormat::mxfp8) {
    reader.tensors().fail_tensor(FindingKind::unsupported, weight, "stored as mxfp8",
                                 "fp8 with a scale a tensor, a channel or a 128 x 128 block");
  } else {
    out.tensor_scale = reader.tensor_scales(request, scale, ScaleMeaning::multiplier);
  }
  out.input_scale = reader.input_scales(request, Part::input_scale, ScaleMeaning::multiplier);
  return out;
}

std::string refusal(const Checkpoint& checkpoint) { return refusal_of(checkpoint, QuantMethod::fp8, fp8_dialect()); }

}  // namespace

const Dialect& fp8_dialect() {
  static constexpr Dialect kDialect = {"fp8", claims, format, read};
  return kDialect;
}

Scheme fp8_scheme() { return {"fp8", refusal, open_source}; }

}  // namespace sluice::ckpt
