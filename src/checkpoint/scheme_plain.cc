#include "checkpoint/scheme_plain.h"

#include <fmt/core.h>

#include "checkpoint/messages.h"
#include "checkpoint/source.h"

namespace sluice::ckpt {
namespace {

bool claims(const ModuleParts& parts) {
  if (!parts.has(Part::weight)) return false;
  const DType type = parts[Part::weight]->dtype;
  return type == DType::bf16 || type == DType::f16 || type == DType::f32;
}

std::optional<BlockFormat> format(const ModuleParts&, const QuantConfig&) { return std::nullopt; }

StoredWeight read(WeightReader& reader, const WeightRequest& request) {
  const ModuleParts& parts = *request.parts;
  const TensorEntry& weight = *parts[Part::weight];
  // With a scale beside it, it would have to be multiplied, or it is a leftover: a guess either way.
  for (const Part part :
       {Part::scale, Part::scale_inv, Part::scale_2, Part::global_scale, Part::packed, Part::blocks}) {
    if (!parts.has(part)) continue;
    reader.tensors().fail_tensor(
        FindingKind::conflict, weight,
        fmt::format("it is {}, but {} lies beside it", safetensors_dtype_name(weight.dtype), quote(parts[part]->name)),
        "codes with scales, or a plain weight without", "the shards seem to be of two exports");
  }
  StoredWeight out;
  reader.set_codes(request, weight, out);
  return out;
}

std::string refusal(const Checkpoint& checkpoint) {
  std::size_t count = 0;
  const TensorEntry* first = nullptr;
  for (const TensorEntry* tensor : checkpoint.tensors()) {
    if (!is_quantised(*tensor)) continue;
    if (count++ == 0) first = tensor;
  }
  if (count == 0) return "";
  std::string method = "not mentioned in config.json";
  if (const auto quantization = checkpoint.config().quantization()) {
    method = "quant_method " + quantization->get_string({"quant_method"}, "unknown");
  }
  return fmt::format("{} tensors are quantised ({}), among them {} of type {}", count, printable(method),
                     quote(first->name), safetensors_dtype_name(first->dtype));
}

}  // namespace

const Dialect& plain_dialect() {
  static constexpr Dialect kDialect = {"plain", claims, format, read};
  return kDialect;
}

Scheme plain_scheme() { return {"plain", refusal, open_source}; }

}  // namespace sluice::ckpt
