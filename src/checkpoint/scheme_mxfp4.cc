#include "checkpoint/scheme_mxfp4.h"

#include "checkpoint/source.h"

namespace sluice::ckpt {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr std::int64_t kGroupBytes = kGroup / 2;

bool is_packed(DType type) { return type == DType::u8 || type == DType::i8 || type == DType::e2m1; }

// Whatever is packed and no other dialect's.
bool claims(const ModuleParts& parts) {
  if (parts.has(Part::blocks)) return true;
  return parts.has(Part::weight) && is_packed(parts[Part::weight]->dtype);
}

std::optional<BlockFormat> format(const ModuleParts&, const QuantConfig&) { return BlockFormat::mxfp4; }

StoredWeight read(WeightReader& reader, const WeightRequest& request) {
  const ModuleParts& parts = *request.parts;
  StoredWeight out;
  out.format = BlockFormat::mxfp4;
  if (parts.has(Part::blocks)) {
    WeightRequest rows = request;
    rows.transposed = false;
    const std::int64_t groups = (request.inputs + kGroup - 1) / kGroup;
    reader.set_packed_codes(rows, *parts[Part::blocks], {groups, kGroupBytes}, out);
    reader.set_block_scales(rows, reader.require_part(request, Part::scales), 1, kGroup, {DType::e8m0}, out);
    return out;
  }
  reader.set_packed_codes(request, *parts[Part::weight], {(request.inputs + 1) / 2}, out);
  const Part part = parts.has(Part::scale_inv) ? Part::scale_inv : Part::scale;
  reader.set_block_scales(request, reader.require_part(request, part), 1, kGroup, {DType::e8m0}, out);
  return out;
}

std::string refusal(const Checkpoint& checkpoint) {
  return refusal_of(checkpoint, QuantMethod::mxfp4, mxfp4_dialect());
}

}  // namespace

const Dialect& mxfp4_dialect() {
  static constexpr Dialect kDialect = {"mxfp4", claims, format, read};
  return kDialect;
}

Scheme mxfp4_scheme() { return {"mxfp4", refusal, open_source}; }

}  // namespace sluice::ckpt
