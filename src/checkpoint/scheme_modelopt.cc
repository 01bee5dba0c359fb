#include "checkpoint/scheme_modelopt.h"

#include "checkpoint/source.h"

namespace sluice::ckpt {
namespace {

constexpr std::int64_t kGroup = 16;

bool is_packed(DType type) { return type == DType::u8 || type == DType::i8 || type == DType::e2m1; }

bool claims(const ModuleParts& parts) {
  if (!parts.has(Part::weight) || !is_packed(parts[Part::weight]->dtype)) return false;
  return parts.has(Part::scale_2) || (parts.has(Part::scale) && parts[Part::scale]->dtype == DType::e4m3);
}

std::optional<BlockFormat> format(const ModuleParts&, const QuantConfig&) { return BlockFormat::nvfp4; }

StoredWeight read(WeightReader& reader, const WeightRequest& request) {
  if (const TensorEntry* smoothing = (*request.parts)[Part::pre_quant_scale]) {
    reader.tensors().fail_tensor(FindingKind::unsupported, *smoothing, "the input is scaled before it is quantised",
                                 "NVFP4 without pre_quant_scale (not NVFP4_AWQ)");
  }
  StoredWeight out;
  out.format = BlockFormat::nvfp4;
  reader.set_packed_codes(request, *(*request.parts)[Part::weight], {(request.inputs + 1) / 2}, out);
  reader.set_block_scales(request, reader.require_part(request, Part::scale), 1, kGroup, {DType::e4m3}, out);
  const TensorEntry& scale = reader.require_part(request, Part::scale_2);
  out.tensor_scale = reader.tensor_scales(request, scale, ScaleMeaning::multiplier);
  out.input_scale = reader.input_scales(request, Part::input_scale, ScaleMeaning::multiplier);
  return out;
}

std::string refusal(const Checkpoint& checkpoint) {
  return refusal_of(checkpoint, QuantMethod::modelopt, modelopt_dialect());
}

}  // namespace

const Dialect& modelopt_dialect() {
  static constexpr Dialect kDialect = {"modelopt", claims, format, read};
  return kDialect;
}

Scheme modelopt_scheme() { return {"modelopt", refusal, open_source}; }

}  // namespace sluice::ckpt
