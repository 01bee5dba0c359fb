// How far a computed result may be from the exact one, from format epsilon and operand norms. The one place tolerances
// come from: tests, `verify` and benches call these, none has a number of its own. Pure functions in float64.
//
// Notation: u = unit roundoff of the format that sums are kept in; a, b the operands of a dot product as they are
// stored (already rounded to bf16, e4m3, ...); n = the most roundings that any one product passes through
// (rounding_depth). The reference value is the same dot product of the same stored operands in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "core/dtype.h"

namespace sluice::tolerance {

// Largest relative error of one rounding to nearest: 2^-p with p significant bits (hidden bit included).
constexpr double unit_roundoff(DType type) {
  switch (type) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::e4m3:
      return 0x1p-4;
    case DType::e5m2:
      return 0x1p-3;
    case DType::e2m1:
      return 0x1p-2;
    default:
      return 0.0;  // nothing is rounded to the other types
  }
}

// Distance of neighbouring numbers next to zero: the step of the subnormals.
constexpr double smallest_step(DType type) {
  switch (type) {
    case DType::f32:
      return 0x1p-149;
    case DType::f16:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-133;
    case DType::e4m3:
      return 0x1p-9;
    case DType::e5m2:
      return 0x1p-16;
    case DType::e2m1:
      return 0.5;
    default:
      return 0.0;
  }
}

// |round(value) - value| <= this, for values that do not overflow the format.
inline double rounding_bound(double value, DType type) {
  return std::max(unit_roundoff(type) * std::fabs(value), 0.5 * smallest_step(type));
}

// How a dot product is summed. segment = 0: one chain of all products, or any other order of them.
// segment = S: ascending chains of S products from zero, the chain sums added in ascending order (architecture 4.5).
struct DotOrder {
  std::int64_t length = 0;  // K
  std::int64_t segment = 0;
  DType accumulator = DType::f32;
  // True when a product of two operands fits the accumulator's significand, as bf16 or fp8 products fit float32.
  bool exact_products = true;
};

// n. Adding to zero is exact, hence the - 1; without exact products their rounding (or that of the first fused
// multiply-add) counts too.
constexpr std::int64_t rounding_depth(const DotOrder& order) {
  if (order.length <= 0) return 0;
  const bool whole = order.segment <= 0 || order.segment >= order.length;
  const std::int64_t chain = whole ? order.length : order.segment;
  const std::int64_t chains = (order.length + chain - 1) / chain;
  return (chain - 1) + (chains - 1) + (order.exact_products ? 0 : 1);
}

// gamma_n = n u / (1 - n u); infinite where the analysis says nothing.
inline double gamma(std::int64_t n, double u) {
  const double nu = static_cast<double>(n) * u;
  return nu < 1.0 ? nu / (1.0 - nu) : INFINITY;
}

// Room for products and sums that fall below the normal numbers of the accumulator; covers units that flush those to
// zero. Assumes that the operands themselves are not subnormal in float32.
inline double underflow_bound(const DotOrder& order) {
  return order.accumulator == DType::f16 ? static_cast<double>(order.length) * 0x1p-14
                                         : static_cast<double>(order.length) * 0x1p-126;
}

// Worst case, never exceeded: |error| <= gamma_n * sum |a b|. A wrong product hides under it once K u * sum |a b|
// reaches the size of a product: for one chain of products of similar size at K = 1 / sqrt(u) = 4096. A segmented order
// stays sharp.
inline double dot_bound(const DotOrder& order, double sum_abs_products) {
  return gamma(rounding_depth(order), unit_roundoff(order.accumulator)) * sum_abs_products + underflow_bound(order);
}

// Statistical: roundings taken as independent with mean zero give |error| <= lambda sqrt(n) u sum |a b| with
// probability at least 1 - 2 n exp(-lambda^2 / 2) a dot product ("A New Approach to Probabilistic Rounding Error
// Analysis", SIAM J. Sci. Comput. 2019; here to first order in u).
inline constexpr double kLambda = 6.0;  // at n = 7168 that is 2e-4, and observed errors are far smaller still
inline double dot_bound_statistical(const DotOrder& order, double sum_abs_products, double lambda = kLambda) {
  const double n = static_cast<double>(rounding_depth(order));
  return lambda * std::sqrt(n) * unit_roundoff(order.accumulator) * sum_abs_products + underflow_bound(order);
}

// Relative L2 error of a product C = A B: ||C' - C||_F / ||C||_F <= gamma_n ||A||_F ||B||_F / ||C||_F, since for each
// entry sum |a b| <= ||row of A|| ||column of B||. The statistical form has lambda sqrt(n) u in place of gamma_n.
inline double matmul_relative_l2_bound(const DotOrder& order, double norm_a, double norm_b, double norm_c) {
  return gamma(rounding_depth(order), unit_roundoff(order.accumulator)) * norm_a * norm_b / norm_c;
}
inline double matmul_relative_l2_bound_statistical(const DotOrder& order, double norm_a, double norm_b, double norm_c,
                                                   double lambda = kLambda) {
  const double n = static_cast<double>(rounding_depth(order));
  return lambda * std::sqrt(n) * unit_roundoff(order.accumulator) * norm_a * norm_b / norm_c;
}

// Distance of two fp32 sums of the same `terms` numbers in different orders or groupings, from the sum of their
// magnitudes.
inline double regrouped_sum_bound(std::int64_t terms, double sum_abs) {
  return 2.0 * gamma(terms, unit_roundoff(DType::f32)) * sum_abs;
}

// An expert's output row, made whole and in pieces of its columns, each summed in fp32 and rounded once to `slot`: L2
// distance of the sum of the pieces from the whole. Norms are L2.
struct SlotRowPieces {
  DType slot = DType::bf16;
  DotOrder order;            // of the whole row's products
  double whole_norm = 0.0;   // of the whole row
  double pieces_norm = 0.0;  // sum of the norms of the pieces
  double input_norm = 0.0;   // of the row that is multiplied
  double weight_norm = 0.0;  // Frobenius
};
inline double slot_row_pieces_bound(const SlotRowPieces& p) {
  const double rounding = unit_roundoff(p.slot) * (p.whole_norm + p.pieces_norm);
  const double products = 2.0 * gamma(rounding_depth(p.order), unit_roundoff(p.order.accumulator));
  return rounding + products * p.input_norm * p.weight_norm;
}

// Relative errors that act one after the other on the same quantity: prod (1 + e) - 1. For relative L2 errors too when
// each step is linear with the same norm; otherwise scale each e by the amplification of what follows it.
inline double compound(std::initializer_list<double> relative_errors) {
  double factor = 1.0;
  for (const double e : relative_errors) factor *= 1.0 + e;
  return factor - 1.0;
}

// Whether a value that is known to +- bound may round to either of two codes, so that a comparison of codes must not
// count it. `encode` is to_e4m3, to_e2m1, ...
template <class Encode>
bool may_round_either_way(double value, double bound, Encode encode) {
  return encode(static_cast<float>(value - bound)).bits != encode(static_cast<float>(value + bound)).bits;
}

}  // namespace sluice::tolerance
