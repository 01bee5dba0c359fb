#include "moe/spec.h"

#include <string>

#include "core/error.h"

namespace sluice {
namespace {

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "MoE layer: " + what, expected);
}

void check_activation(const ActivationSpec& spec) {
  const std::string name(activation_name(spec.kind));
  const bool clamps = spec.kind == ActivationKind::swiglu_oai || spec.kind == ActivationKind::swiglu_clamped ||
                      spec.kind == ActivationKind::swiglu_step;
  // Infinity is fine: no clamp.
  require(!clamps || spec.limit > 0.0f, "limit of " + name + " is " + std::to_string(spec.limit), "a positive number");
  require(spec.kind != ActivationKind::situ || (spec.beta != 0.0f && spec.beta == spec.beta),
          "beta of situ is " + std::to_string(spec.beta), "a number other than 0, which it divides by");
}

}  // namespace

void validate(const LayerSpec& layer) {
  require(layer.hidden >= 1, "hidden is " + std::to_string(layer.hidden), "at least 1");
  require(layer.intermediate >= 1, "intermediate is " + std::to_string(layer.intermediate), "at least 1");
  require(layer.expert_width >= 0, "expert_width is " + std::to_string(layer.expert_width), "0 or more");
  validate(layer.routing);
  require(!layer.weight_on_input || layer.routing.slots() == 1,
          "weight_on_input with " + std::to_string(layer.routing.slots()) + " experts a token",
          "1, because the activation is not linear");
  check_activation(layer.activation);
}

}  // namespace sluice
