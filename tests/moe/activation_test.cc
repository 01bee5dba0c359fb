// Expected values: the formulas of moe/spec.h evaluated with 30 digits (mpmath), printed to 17.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "moe/spec.h"
#include "numerics/tolerance.h"

namespace sluice {
namespace {

struct Case {
  ActivationSpec spec;
  float gate;
  float up;
  double expected;
};

constexpr ActivationSpec kOai{ActivationKind::swiglu_oai, 1.702f, 1.0f, 7.0f, 0.0f};
constexpr ActivationSpec kClamped10{ActivationKind::swiglu_clamped, 1.702f, 1.0f, 10.0f, 0.0f};
constexpr ActivationSpec kStep7{ActivationKind::swiglu_step, 1.702f, 1.0f, 7.0f, 0.0f};
constexpr ActivationSpec kSitu{ActivationKind::situ, 1.702f, 4.0f, 7.0f, 25.0f};
constexpr ActivationSpec kSituPlainUp{ActivationKind::situ, 1.702f, 4.0f, 7.0f, 0.0f};

const Case kCases[] = {
    {{ActivationKind::swiglu}, 1.0f, 2.0f, 1.4621171572600098},
    {{ActivationKind::swiglu}, -1.5f, -3.0f, 0.82091485712860353},
    {{ActivationKind::geglu_erf}, 1.0f, 2.0f, 1.6826894921370859},
    {{ActivationKind::geglu_erf}, -1.5f, 3.0f, -0.30063240570986130},
    {{ActivationKind::geglu_tanh}, 1.0f, 2.0f, 1.6823839812165534},
    {{ActivationKind::geglu_tanh}, -1.5f, 3.0f, -0.30128526905930123},
    {kOai, 1.0f, 2.0f, 2.5373872977984639},
    {kOai, 7.0f, 2.0f, 20.999859384909952},
    {kOai, 8.0f, 2.0f, 20.999859384909952},       // gate limited from above
    {kOai, -8.0f, 2.0f, -2.9299286597191135e-5},  // and not from below
    {kOai, 1.0f, 9.0f, 6.7663661274625704},       // up limited to 7, + 1
    {kOai, 1.0f, -9.0f, -5.0747745955969278},     // and to -7, + 1
    {kClamped10, 1.0f, 2.0f, 1.4621171572600098},
    {kClamped10, 12.0f, 2.0f, 19.999092042625951},
    {kClamped10, -12.0f, 2.0f, -0.00014746019045315323},
    {kClamped10, 1.0f, 11.0f, 7.3105857863000488},
    {kClamped10, 1.0f, -11.0f, -7.3105857863000488},
    {kStep7, 1.0f, 2.0f, 1.4621171572600098},
    {kStep7, 7.0f, 1.0f, 6.9936226416391955},  // silu(7) is below the limit
    {kStep7, 8.0f, 1.0f, 7.0},
    {kStep7, -8.0f, 1.0f, -0.0026828010437318248},
    {kStep7, 1.0f, 9.0f, 5.1174100504100342},
    {kStep7, 1.0f, -9.0f, -5.1174100504100342},
    {kSitu, 2.0f, 3.0f, 4.8610665512498687},
    {kSitu, -10.0f, 3.0f, -0.00053491709587130189},  // the sigmoid sees -10, not the capped -3.9
    {kSitu, 40.0f, 100.0f, 99.932929561952464},
    {kSituPlainUp, 2.0f, 3.0f, 4.8843773015767462},
    {{ActivationKind::relu2}, 100.0f, 3.0f, 9.0},
    {{ActivationKind::relu2}, 100.0f, -3.0f, 0.0},
};

// At most 16 roundings; 1 + erf and 1 + tanh lose up to 16 times more where they cancel.
double tolerance_of(double expected) { return 16 * 16 * tolerance::rounding_bound(expected, DType::f32); }

TEST(Activation, HandComputedValues) {
  for (const Case& c : kCases) {
    const std::string name(activation_name(c.spec.kind));
    EXPECT_NEAR(activate(c.spec, c.gate, c.up), c.expected, tolerance_of(c.expected))
        << name << " of " << c.gate << ", " << c.up;
  }
}

TEST(Activation, NoClampAtInfiniteLimit) {
  ActivationSpec spec = kClamped10;
  spec.limit = INFINITY;
  EXPECT_EQ(activate(spec, 50.0f, -60.0f), activate({ActivationKind::swiglu}, 50.0f, -60.0f));
}

TEST(Activation, LargeGatesGiveNoNaN) {
  EXPECT_EQ(activate({ActivationKind::swiglu}, -1000.0f, 2.0f), 0.0f);  // exp(1000) overflows
  EXPECT_EQ(activate({ActivationKind::swiglu}, 1000.0f, 2.0f), 2000.0f);
  EXPECT_EQ(activate({ActivationKind::geglu_tanh}, -1e10f, 2.0f), 0.0f);
}

TEST(Activation, OnlyRelu2IsNotGated) {
  int gated = 0;
  for (int i = 0; i < 8; ++i) gated += is_gated(static_cast<ActivationKind>(i)) ? 1 : 0;
  EXPECT_EQ(gated, 7);
  EXPECT_FALSE(is_gated(ActivationKind::relu2));
}

}  // namespace
}  // namespace sluice
