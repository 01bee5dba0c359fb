#include "checkpoint/scheme_compressed_tensors.h"

#include "checkpoint/source.h"

namespace sluice::ckpt {
namespace {

constexpr std::int64_t kNvGroup = 16;
constexpr std::int64_t kMxGroup = 32;

bool claims(const ModuleParts& parts) { return parts.has(Part::packed); }

std::optional<BlockFormat> format(const ModuleParts& parts, const QuantConfig&) {
  const bool is_nv =
      parts.has(Part::global_scale) || !parts.has(Part::scale) || parts[Part::scale]->dtype == DType::e4m3;
  return is_nv ? BlockFormat::nvfp4 : BlockFormat::mxfp4;
}

StoredWeight read(WeightReader& reader, const WeightRequest& request) {
  const ModuleParts& parts = *request.parts;
  const TensorEntry& codes = *parts[Part::packed];
  if (codes.dtype == DType::i32) {
    reader.tensors().fail_tensor(FindingKind::unsupported, codes, "integer codes (pack-quantized)",
                                 "nvfp4-pack-quantized, mxfp4-pack-quantized or float-quantized");
  }
  StoredWeight out;
  out.format = format(parts, reader.config());
  reader.set_packed_codes(request, codes, {(request.inputs + 1) / 2}, out);
  const TensorEntry& scale = reader.require_part(request, Part::scale);
  if (out.format == BlockFormat::mxfp4) {
    reader.set_block_scales(request, scale, 1, kMxGroup, {DType::e8m0}, out);
    return out;
  }
  reader.set_block_scales(request, scale, 1, kNvGroup, {DType::e4m3}, out);
  const TensorEntry& global = reader.require_part(request, Part::global_scale);
  out.tensor_scale = reader.tensor_scales(request, global, ScaleMeaning::reciprocal);
  out.input_scale = reader.input_scales(request, Part::input_global_scale, ScaleMeaning::reciprocal);
  return out;
}

std::string refusal(const Checkpoint& checkpoint) {
  return refusal_of(checkpoint, QuantMethod::compressed_tensors, compressed_tensors_dialect());
}

}  // namespace

const Dialect& compressed_tensors_dialect() {
  static constexpr Dialect kDialect = {"compressed-tensors", claims, format, read};
  return kDialect;
}

Scheme compressed_tensors_scheme() { return {"compressed-tensors", refusal, open_source}; }

}  // namespace sluice::ckpt
