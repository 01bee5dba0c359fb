// The activations of moe/spec.h in float64, and how far the f32 kernels may be from them.
#pragma once

#include <algorithm>
#include <cmath>

#include "moe/spec.h"
#include "numerics/tolerance.h"

namespace sluice::cpu::testing {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct Expected {
  double value = 0.0;
  double absolute = 0.0;  // magnitude at which a cancellation in the formula is rounded; its result may be far smaller
};

// The formulas of moe/spec.h in float64.
inline Expected expected(const ActivationSpec& s, double g, double u) {
  const double g_max = std::min<double>(g, s.limit);
  const double u_in = std::clamp<double>(u, -s.limit, s.limit);
  switch (s.kind) {
    case ActivationKind::swiglu:
      return {g * sigmoid(g) * u};
    case ActivationKind::geglu_erf:
      return {0.5 * g * (1.0 + std::erf(g / std::sqrt(2.0))) * u, std::fabs(0.5 * g * u)};
    case ActivationKind::geglu_tanh:
      return {0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g))) * u,
              std::fabs(0.5 * g * u)};
    case ActivationKind::swiglu_oai:
      return {g_max * sigmoid(static_cast<double>(s.alpha) * g_max) * (u_in + s.beta),
              std::fabs(g_max * (std::fabs(u_in) + s.beta))};
    case ActivationKind::swiglu_clamped:
      return {g_max * sigmoid(g_max) * u_in};
    case ActivationKind::swiglu_step:
      return {std::min<double>(g * sigmoid(g), s.limit) * u_in};
    case ActivationKind::situ: {
      const double cap = s.linear_beta == 0.0f ? u : s.linear_beta * std::tanh(u / s.linear_beta);
      return {s.beta * std::tanh(g / s.beta) * sigmoid(g) * cap};
    }
    case ActivationKind::relu2:
      return {u > 0.0 ? u * u : 0.0};
  }
  return {};
}

// Up to 8 roundings or approximations of about one unit each act on a result (12 with a second tanh). Where the
// argument of a sigmoid is a product that was rounded (alpha * g), the exponential turns that into a relative error of
// |x| units. A sigmoid below the normal numbers may come out as zero; gate and up then magnify what is lost.
inline double bound(const ActivationSpec& spec, double g, double u) {
  constexpr double kUnit = tolerance::unit_roundoff(DType::f32);
  const Expected e = expected(spec, g, u);
  double roundings = 8.0;
  if (spec.kind == ActivationKind::situ) roundings = 12.0;
  if (spec.kind == ActivationKind::swiglu_oai) roundings += 2.0 * std::min(std::fabs(g), 90.0);
  return roundings * kUnit * std::fabs(e.value) + 8.0 * kUnit * e.absolute + 0x1p-125 * (1.0 + std::fabs(g * u));
}

}  // namespace sluice::cpu::testing
