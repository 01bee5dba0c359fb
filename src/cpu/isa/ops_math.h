// Elementary functions on V (included after a vector header). Internal linkage throughout.
#pragma once

namespace sluice::cpu {
namespace {

// e^x within 1 ulp (1.3 ulp without fused multiply-add); 0 below -104, inf above 88.73, NaN for NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2, then 1 + r + r^2 p(r) with p fitted at Chebyshev nodes.
inline V exp(V x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const V shift = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V shifted = fma(x, broadcast(1.44269504f), shift);
  const V n = sub(shifted, shift);
  V r = fma(n, broadcast(-0.693359375f), x);  // exact: 9 significant bits times at most 8
  r = fma(n, broadcast(2.12194440e-4f), r);
  V p = broadcast(0.0013933734f);
  p = fma(p, r, broadcast(0.008363236f));
  p = fma(p, r, broadcast(0.041666463f));
  p = fma(p, r, broadcast(0.16666576f));
  p = fma(p, r, broadcast(0.5f));
  const V y = add(fma(p, mul(r, r), r), broadcast(1.0f));
  return scale_by_power(y, shifted);
}

inline V sigmoid(V x) { return div(broadcast(1.0f), add(broadcast(1.0f), exp(negate(x)))); }

inline V clamp(V x, V limit) { return min(limit, max(negate(limit), x)); }

}  // namespace
}  // namespace sluice::cpu
