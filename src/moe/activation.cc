#include <cmath>

#include "moe/spec.h"

namespace sluice {
namespace {

// Both bounds let a NaN through: every comparison with it is false.
float at_most(float v, float limit) { return v > limit ? limit : v; }
float within(float v, float limit) { return v < -limit ? -limit : at_most(v, limit); }

// For x below about -88 exp overflows to infinity and the result is a correct 0.
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float silu(float x) { return x * sigmoid(x); }

float gelu_erf(float x) {
  constexpr float kInvSqrt2 = 0.70710678118654752f;
  return 0.5f * x * (1.0f + std::erf(x * kInvSqrt2));
}

float gelu_tanh(float x) {
  constexpr float kSqrt2OverPi = 0.79788456080286536f;
  return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}

float swiglu_oai(const ActivationSpec& spec, float gate, float up) {
  const float g = at_most(gate, spec.limit);
  return g * sigmoid(spec.alpha * g) * (within(up, spec.limit) + spec.beta);
}

// The sigmoid sees the gate before its soft cap.
float situ(const ActivationSpec& spec, float gate, float up) {
  const float capped = spec.beta * std::tanh(gate / spec.beta) * sigmoid(gate);
  if (spec.linear_beta == 0.0f) return capped * up;
  return capped * (spec.linear_beta * std::tanh(up / spec.linear_beta));
}

float relu2(float x) {
  const float positive = x < 0.0f ? 0.0f : x;
  return positive * positive;
}

}  // namespace

bool is_gated(ActivationKind kind) { return kind != ActivationKind::relu2; }

std::string_view activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::swiglu:
      return "swiglu";
    case ActivationKind::geglu_erf:
      return "geglu-erf";
    case ActivationKind::geglu_tanh:
      return "geglu-tanh";
    case ActivationKind::swiglu_oai:
      return "swiglu-oai";
    case ActivationKind::swiglu_clamped:
      return "swiglu-clamped";
    case ActivationKind::swiglu_step:
      return "swiglu-step";
    case ActivationKind::situ:
      return "situ";
    case ActivationKind::relu2:
      return "relu2";
  }
  return "unknown";
}

float activate(const ActivationSpec& spec, float gate, float up) {
  switch (spec.kind) {
    case ActivationKind::swiglu:
      return silu(gate) * up;
    case ActivationKind::geglu_erf:
      return gelu_erf(gate) * up;
    case ActivationKind::geglu_tanh:
      return gelu_tanh(gate) * up;
    case ActivationKind::swiglu_oai:
      return swiglu_oai(spec, gate, up);
    case ActivationKind::swiglu_clamped:
      return silu(at_most(gate, spec.limit)) * within(up, spec.limit);
    case ActivationKind::swiglu_step:
      return at_most(silu(gate), spec.limit) * within(up, spec.limit);
    case ActivationKind::situ:
      return situ(spec, gate, up);
    case ActivationKind::relu2:
      return relu2(up);
  }
  return 0.0f;
}

}  // namespace sluice
