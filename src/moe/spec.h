// What a MoE layer computes, apart from number formats: sizes, routing and activation. Plain data, built by a model
// family.
#pragma once

#include <cstdint>
#include <string_view>

#include "moe/routing.h"

namespace sluice {

// Formulas in fp32, g = gate, u = up, s(x) = 1 / (1 + exp(-x)). Sources: moe-runner-spec 0.4, fused-moe-numerics 1.1.2.
enum class ActivationKind : std::uint8_t {
  swiglu,          // g s(g) u
  geglu_erf,       // gelu(g) u with gelu(g) = g (1 + erf(g / sqrt 2)) / 2
  geglu_tanh,      // the tanh approximation of gelu
  swiglu_oai,      // g' = min(g, limit), u' = clamp(u, -limit, limit): g' s(alpha g') (u' + beta)
  swiglu_clamped,  // the same clamps, then g' s(g') u'
  swiglu_step,     // min(g s(g), limit) clamp(u, -limit, limit)
  situ,            // beta tanh(g / beta) s(g) linear_beta tanh(u / linear_beta); linear_beta = 0: plain u
  relu2,           // max(u, 0)^2, not gated
};

struct ActivationSpec {
  ActivationKind kind = ActivationKind::swiglu;
  float alpha = 1.702f;       // swiglu_oai
  float beta = 1.0f;          // swiglu_oai, situ (there 4 by default of the family)
  float limit = 7.0f;         // swiglu_oai, swiglu_clamped, swiglu_step
  float linear_beta = 25.0f;  // situ
};

// Gated experts have gate and up; others only up.
bool is_gated(ActivationKind kind);
std::string_view activation_name(ActivationKind kind);

// One output of the activation in fp32. For kinds that are not gated `gate` is ignored.
float activate(const ActivationSpec& spec, float gate, float up);

struct LayerSpec {
  std::int64_t hidden = 0;        // H
  std::int64_t intermediate = 0;  // I, of this rank
  std::int64_t expert_width = 0;  // width of what experts read and write; 0 = hidden (latent MoE has less)
  RoutingSpec routing;            // E and k live here
  ActivationSpec activation;
  bool has_bias = false;         // experts carry gate/up/down biases
  bool weight_on_input = false;  // the routing weight multiplies the input instead of the output; k = 1 only

  std::int64_t width() const { return expert_width != 0 ? expert_width : hidden; }
};

// Throws Error(usage) naming the field when a layer makes no sense (sizes below 1, weight_on_input with k > 1, a
// clamp limit that is not positive, a division by a zero beta); includes validate(layer.routing).
void validate(const LayerSpec& layer);

}  // namespace sluice
