// Activations over a vector class V (see gemm_body.h), with the formulas of moe/spec.h. The same code runs for every
// row of every batch, so a row's bits don't depend on its neighbours.
//
// exp, tanh and erf are own minimax fits (least squares reweighted towards the largest relative error); measured
// against float64 in tests/cpu/gemm_activation_test.cc. A NaN passes through everything.
#pragma once

#include "cpu/isa/gemm_body.h"

namespace sluice::cpu {
namespace {

// Coefficients from the highest power down.
template <class V, class... Rest>
SLUICE_INLINE typename V::F horner(typename V::F x, float first, Rest... rest) {
  typename V::F sum = V::broadcast(first);
  ((sum = V::fma(sum, x, V::broadcast(rest))), ...);
  return sum;
}

template <class V>
SLUICE_INLINE typename V::F vexp(typename V::F x) {
  using F = typename V::F;
  // Outside these bounds the result is infinite or zero anyway.
  x = V::at_least(V::at_most(x, V::broadcast(89.0f)), V::broadcast(-104.0f));
  const F n = V::round(V::mul(x, V::broadcast(1.44269504f)));
  F r = V::fma(n, V::broadcast(-0.693359375f), x);  // n * the upper 9 bits of ln 2 is exact
  r = V::fma(n, V::broadcast(2.12194440e-4f), r);
  const F p = horner<V>(r, 1.381459879e-03f, 8.368716575e-03f, 4.166838899e-02f, 1.666652113e-01f, 4.999999404e-01f);
  return V::ldexp(V::add(V::fma(V::mul(r, r), p, r), V::broadcast(1.0f)), n);
}

template <class V>
SLUICE_INLINE typename V::F vsigmoid(typename V::F x) {
  const typename V::F one = V::broadcast(1.0f);
  return V::div(one, V::add(one, vexp<V>(V::negate(x))));
}

// 1 - 2 / (exp(2 |x|) + 1), and a polynomial where that would cancel.
template <class V>
SLUICE_INLINE typename V::F vtanh(typename V::F x) {
  using F = typename V::F;
  const F one = V::broadcast(1.0f);
  const F size = V::abs(x);
  const F s = V::mul(x, x);
  const F p = horner<V>(s, -5.704987328e-03f, 2.063908800e-02f, -5.373971537e-02f, 1.333144158e-01f, -3.333328068e-01f);
  const F small = V::fma(V::mul(p, s), size, size);
  const F e = vexp<V>(V::add(size, size));
  const F large = V::sub(one, V::div(V::broadcast(2.0f), V::add(e, one)));
  return V::copy_sign(V::less(size, V::broadcast(0.625f), small, large), x);
}

// x + x P(x^2) below 0.92, 1 - exp(Q(|x|)) above, where Q is log erfc.
template <class V>
SLUICE_INLINE typename V::F verf(typename V::F x) {
  using F = typename V::F;
  const F size = V::abs(x);
  const F p = horner<V>(V::mul(x, x), -5.631465465e-04f, 4.917563405e-03f, -2.671132423e-02f, 1.128018051e-01f,
                        -3.761232495e-01f, 1.283791214e-01f);
  const F small = V::fma(p, size, size);
  const F q = horner<V>(V::at_most(size, V::broadcast(3.95f)), 1.949458238e-04f, -3.033683868e-03f, 2.218974382e-02f,
                        -1.038563102e-01f, -6.372658014e-01f, -1.127627373e+00f, -2.070171031e-04f);
  const F large = V::sub(V::broadcast(1.0f), vexp<V>(q));
  return V::copy_sign(V::less(size, V::broadcast(0.92f), small, large), x);
}

template <class V>
SLUICE_INLINE typename V::F within(typename V::F x, float limit) {
  return V::at_least(V::at_most(x, V::broadcast(limit)), V::broadcast(-limit));
}

template <class V>
SLUICE_INLINE typename V::F vsilu(typename V::F x) {
  return V::mul(x, vsigmoid<V>(x));
}

template <class V>
SLUICE_INLINE typename V::F vgelu_tanh(typename V::F x) {
  const typename V::F cube = V::mul(V::mul(V::mul(V::broadcast(0.044715f), x), x), x);
  const typename V::F t = vtanh<V>(V::mul(V::broadcast(0.79788456f), V::add(x, cube)));
  return V::mul(V::mul(V::broadcast(0.5f), x), V::add(V::broadcast(1.0f), t));
}

template <class V>
SLUICE_INLINE typename V::F vgelu_erf(typename V::F x) {
  const typename V::F e = verf<V>(V::mul(x, V::broadcast(0.70710678f)));
  return V::mul(V::mul(V::broadcast(0.5f), x), V::add(V::broadcast(1.0f), e));
}

template <class V>
SLUICE_INLINE typename V::F swiglu_oai(const ActivationNumbers& a, typename V::F gate, typename V::F up) {
  const typename V::F g = V::at_most(gate, V::broadcast(a.limit));
  const typename V::F glu = V::mul(g, vsigmoid<V>(V::mul(V::broadcast(a.alpha), g)));
  return V::mul(glu, V::add(within<V>(up, a.limit), V::broadcast(a.beta)));
}

template <class V>
SLUICE_INLINE typename V::F soft_cap(typename V::F x, float cap) {
  return V::mul(V::broadcast(cap), vtanh<V>(V::div(x, V::broadcast(cap))));
}

template <class V>
SLUICE_INLINE typename V::F situ(const ActivationNumbers& a, typename V::F gate, typename V::F up) {
  const typename V::F glu = V::mul(soft_cap<V>(gate, a.beta), vsigmoid<V>(gate));
  return V::mul(glu, a.linear_beta == 0.0f ? up : soft_cap<V>(up, a.linear_beta));
}

template <class V>
typename V::F activation(const ActivationNumbers& a, typename V::F gate, typename V::F up) {
  switch (a.kind) {
    case Activation::swiglu:
      return V::mul(vsilu<V>(gate), up);
    case Activation::geglu_erf:
      return V::mul(vgelu_erf<V>(gate), up);
    case Activation::geglu_tanh:
      return V::mul(vgelu_tanh<V>(gate), up);
    case Activation::swiglu_oai:
      return swiglu_oai<V>(a, gate, up);
    case Activation::swiglu_clamped:
      return V::mul(vsilu<V>(V::at_most(gate, V::broadcast(a.limit))), within<V>(up, a.limit));
    case Activation::swiglu_step:
      return V::mul(V::at_most(vsilu<V>(gate), V::broadcast(a.limit)), within<V>(up, a.limit));
    case Activation::situ:
      return situ<V>(a, gate, up);
    case Activation::relu2: {
      const typename V::F positive = V::at_least(up, V::zero());
      return V::mul(positive, positive);
    }
  }
  return V::zero();
}

}  // namespace
}  // namespace sluice::cpu
