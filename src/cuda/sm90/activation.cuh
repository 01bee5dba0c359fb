// Activations of the expert GEMM kernel in fp32 (formulas: moe/spec.h).
//
// Called by the epilogue of FC1. The kinds that are a clamped gate through a sigmoid share one branch-free function
// (GateCurve); the rest go through a switch in kernels of their own.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

// False for kinds that GateCurve does not express; see moe/spec.h for the formulas. On the host.
bool make_curve(const ActivationSpec& spec, GateCurve& curve);

// Relative error about 1e-6; 0 where exp overflows. What is flushed to zero would be lost in the sum, or is 0 by that.
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  return ptx::reciprocal_flushed(1.0f + ptx::exp2_flushed(x * -kLog2E));
}

// The bound on g^2 keeps 0 * infinity out of kinds without a cubic term.
__device__ __forceinline__ float gate_curve(const GateCurve& c, float gate, float up) {
  const float g = ptx::min_nan(gate, c.gate_limit);
  const float slope = fmaf(c.a3, fminf(g * g, 3.0e38f), c.a1);
  const float s = ptx::min_nan(g * sigmoid(g * slope), c.cap);
  const float u = ptx::max_nan(ptx::min_nan(up, c.up_limit), -c.up_limit);
  return s * (u + c.up_shift);
}

// The same bits where `c.plain`.
__device__ __forceinline__ float plain_curve(float gate, float up) { return gate * sigmoid(gate) * (up + 0.0f); }

// The same bits where `c.clamped`.
__device__ __forceinline__ float clamped_curve(const GateCurve& c, float gate, float up) {
  const float g = ptx::min_nan(gate, c.gate_limit);
  const float u = ptx::max_nan(ptx::min_nan(up, c.up_limit), -c.up_limit);
  return g * sigmoid(g * c.a1) * (u + c.up_shift);
}

__device__ __forceinline__ float other_activation(const ActivationSpec& spec, float gate, float up) {
  if (spec.kind == ActivationKind::relu2) {
    const float positive = up < 0.0f ? 0.0f : up;
    return positive * positive;
  }
  if (spec.kind == ActivationKind::geglu_erf) return 0.5f * gate * (1.0f + erff(gate * 0.70710678118654752f)) * up;
  const float capped = spec.beta * tanhf(gate / spec.beta) * sigmoid(gate);
  return capped * (spec.linear_beta == 0.0f ? up : spec.linear_beta * tanhf(up / spec.linear_beta));
}

// `Curve` kernels know the kinds of GateCurve.
template <bool Curve>
__device__ __forceinline__ float activation(const GemmArgs& args, float gate, float up) {
  if constexpr (Curve) return gate_curve(args.curve, gate, up);
  return other_activation(args.activation, gate, up);
}

}  // namespace sluice::cuda::sm90
