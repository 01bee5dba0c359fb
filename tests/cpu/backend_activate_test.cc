// Activations of dense layers: the vector loops against float64, the others against the reference function.
#include <cmath>

#include "backend_fixture.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using ActivateTest = BackendTest;

const double kU = tolerance::unit_roundoff(DType::f32);

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double within(double x, double limit) { return std::clamp(x, -limit, limit); }

struct Exact {
  double value = 0;
  double exponent = 0;  // of the exponential inside: its relative error scales with it
};

Exact exact(const ActivationSpec& spec, double g, double u) {
  const double limit = spec.limit;
  switch (spec.kind) {
    case ActivationKind::swiglu:
      return {g * sigmoid(g) * u, 0};
    case ActivationKind::geglu_tanh: {
      const double z = std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
      return {g * sigmoid(2 * z) * u, 2 * z};
    }
    case ActivationKind::swiglu_oai: {
      const double h = std::min(g, limit);
      return {h * sigmoid(static_cast<double>(spec.alpha) * h) * (within(u, limit) + spec.beta), spec.alpha * h};
    }
    case ActivationKind::swiglu_clamped: {
      const double h = std::min(g, limit);
      return {h * sigmoid(h) * within(u, limit), 0};
    }
    case ActivationKind::swiglu_step:
      return {std::min(g * sigmoid(g), limit) * within(u, limit), 0};
    default:
      return {std::max(u, 0.0) * std::max(u, 0.0), 0};
  }
}

// Values around zero, around the limits and far out.
std::vector<float> interesting(std::size_t n, unsigned seed) {
  std::vector<float> x = normal_floats(n, seed, 4.0f);
  const std::vector<float> special{0, -0.0f, 7, -7, 7.001f, -7.001f, 1e-20f, -30, 30, -80, 80, 1, -1};
  std::copy(special.begin(), special.end(), x.begin() + static_cast<std::ptrdiff_t>(seed));
  return x;
}

TEST_P(ActivateTest, VectorLoopsAgainstFloat64) {
  for (const ActivationKind kind :
       {ActivationKind::swiglu, ActivationKind::geglu_tanh, ActivationKind::swiglu_oai, ActivationKind::swiglu_clamped,
        ActivationKind::swiglu_step, ActivationKind::relu2}) {
    ActivationSpec spec;
    spec.kind = kind;
    const std::int64_t cols = 301;
    const std::vector<float> gate = interesting(3 * 301, 3);
    const std::vector<float> up = interesting(3 * 301, 40);
    std::vector<float> y = poisoned_floats(gate.size());
    std::vector<std::uint16_t> rounded(gate.size(), 0xFFFF);
    const bool gated = is_gated(kind);
    const ConstTensorView g = gated ? view(gate, 3, cols) : ConstTensorView{};
    backend_.activate(spec, g, view(up, 3, cols), view(y, 3, cols), kStream);
    backend_.activate(spec, g, view(up, 3, cols), view(rounded, 3, cols), kStream);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Exact e = exact(spec, gate[i], up[i]);
      const double bound = std::fabs(e.value) * (10 + 6 * std::fabs(e.exponent)) * kU + 1e-37;
      // The sum u' + beta may cancel: its absolute rounding is relative to the larger term.
      const double cancelled = kind == ActivationKind::swiglu_oai ? std::fabs(gate[i]) * 8 * kU : 0.0;
      ASSERT_NEAR(y[i], e.value, bound + cancelled * kU) << activation_name(kind) << " " << gate[i] << " " << up[i];
      ASSERT_EQ(rounded[i], to_bf16(y[i]).bits);
    }
  }
}

TEST_P(ActivateTest, OtherKindsAreTheReferenceFunction) {
  for (const ActivationKind kind : {ActivationKind::geglu_erf, ActivationKind::situ}) {
    ActivationSpec spec;
    spec.kind = kind;
    spec.beta = 4.0f;
    const std::vector<float> gate = interesting(2 * 50, 5);
    const std::vector<float> up = interesting(2 * 50, 20);
    std::vector<float> y = poisoned_floats(gate.size());
    std::vector<std::uint16_t> rounded(gate.size(), 0xFFFF);
    backend_.activate(spec, view(gate, 2, 50), view(up, 2, 50), view(y, 2, 50), kStream);
    backend_.activate(spec, view(gate, 2, 50), view(up, 2, 50), view(rounded, 2, 50), kStream);
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(y[i], activate(spec, gate[i], up[i]));
      EXPECT_EQ(rounded[i], to_bf16(y[i]).bits);
    }
  }
}

TEST_P(ActivateTest, NotANumberPassesThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ActivationKind kind :
       {ActivationKind::swiglu, ActivationKind::geglu_tanh, ActivationKind::swiglu_oai, ActivationKind::swiglu_clamped,
        ActivationKind::swiglu_step, ActivationKind::relu2}) {
    ActivationSpec spec;
    spec.kind = kind;
    const std::vector<float> gate{1, nan, 1};
    const std::vector<float> up{1, 1, nan};
    std::vector<float> y(3);
    backend_.activate(spec, view(gate, 1, 3), view(up, 1, 3), view(y, 1, 3), kStream);
    EXPECT_FALSE(std::isnan(y[0]));
    EXPECT_EQ(std::isnan(y[1]), is_gated(kind)) << activation_name(kind);
    EXPECT_TRUE(std::isnan(y[2])) << activation_name(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ActivateTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
