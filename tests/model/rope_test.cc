// Rotary frequencies against the published formulas, evaluated here in double, and against hand-computed values of
// known models.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sluice::model {
namespace {

constexpr double kPi = 3.14159265358979323846;
// The table is computed in steps of float as training software does: power, reciprocal, scaling.
constexpr double kRelative = 4 * 1.2e-7;

RopeSpec spec(ckpt::RopeType type, double theta, std::int32_t rotary_dim) {
  RopeSpec s;
  s.config.type = type;
  s.config.theta = theta;
  s.rotary_dim = rotary_dim;
  return s;
}

double plain(double theta, std::int32_t dim, std::size_t i) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / dim);
}

void expect_near_relative(const std::vector<float>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], kRelative * expected[i]) << "pair " << i;
  }
}

TEST(Rope, PlainFrequencies) {
  for (const double theta : {10000.0, 1000000.0}) {
    const RopeFrequencies f = rope_frequencies(spec(ckpt::RopeType::plain, theta, 64));
    std::vector<double> expected;
    for (std::size_t i = 0; i < 32; ++i) expected.push_back(plain(theta, 64, i));
    expect_near_relative(f.inv_freq, expected);
    EXPECT_EQ(f.factor, 1.0f);
  }
  // theta 10000 and 4 columns: 1 and 1 / sqrt(10000).
  EXPECT_EQ(rope_frequencies(spec(ckpt::RopeType::plain, 10000.0, 4)).inv_freq, (std::vector<float>{1.0f, 0.01f}));
}

TEST(Rope, LinearDividesEveryFrequency) {
  RopeSpec s = spec(ckpt::RopeType::linear, 10000.0, 32);
  s.config.factor = 4.0;
  std::vector<double> expected;
  for (std::size_t i = 0; i < 16; ++i) expected.push_back(plain(10000.0, 32, i) / 4.0);
  expect_near_relative(rope_frequencies(s).inv_freq, expected);
}

// Llama 3.1: theta 500000, head of 128, factor 8 over 8192 positions, low 1, high 4.
TEST(Rope, Llama3KeepsHighAndStretchesLowFrequencies) {
  RopeSpec s = spec(ckpt::RopeType::llama3, 500000.0, 128);
  s.config.factor = 8.0;
  s.config.original_max_positions = 8192;
  std::vector<double> expected;
  int kept = 0;
  int stretched = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double f = plain(500000.0, 128, i);
    const double turns = 8192.0 * f / (2.0 * kPi);  // over the original context
    const double keep = std::clamp((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0);
    kept += keep == 1.0;
    stretched += keep == 0.0;
    expected.push_back(keep * f + (1.0 - keep) * f / 8.0);
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(stretched, 20);
  EXPECT_LT(kept + stretched, 64);
  const RopeFrequencies found = rope_frequencies(s);
  expect_near_relative(found.inv_freq, expected);
  EXPECT_EQ(found.factor, 1.0f);
}

std::vector<double> yarn_expected(const ckpt::RopeConfig& c, std::int32_t dim) {
  // Pair index at which the angle makes `turns` turns over the original context: f = 2 pi turns / original.
  const auto pair_of = [&](double turns) {
    return dim / 2.0 * std::log(static_cast<double>(c.original_max_positions) / (2.0 * kPi * turns)) /
           std::log(c.theta);
  };
  double low = pair_of(c.beta_fast);
  double high = pair_of(c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  std::vector<double> expected;
  for (std::int32_t i = 0; i < dim / 2; ++i) {
    const double f = plain(c.theta, dim, static_cast<std::size_t>(i));
    const double stretch = std::clamp((i - low) / (high - low), 0.0, 1.0);
    expected.push_back((1.0 - stretch) * f + stretch * f / c.factor);
  }
  return expected;
}

// GPT-OSS: theta 150000, head of 64, factor 32 over 4096 positions, ramp ends not rounded.
TEST(Rope, YarnRampsBetweenKeptAndStretched) {
  RopeSpec s = spec(ckpt::RopeType::yarn, 150000.0, 64);
  s.config.factor = 32.0;
  s.config.original_max_positions = 4096;
  for (const bool truncate : {false, true}) {
    s.config.truncate = truncate;
    const RopeFrequencies f = rope_frequencies(s);
    expect_near_relative(f.inv_freq, yarn_expected(s.config, 64));
    EXPECT_NEAR(f.factor, 1.3465735902799727, 1e-7);  // 0.1 ln 32 + 1
  }
  EXPECT_EQ(rope_frequencies(s).inv_freq.front(), 1.0f);
  EXPECT_NEAR(rope_frequencies(s).inv_freq.back(), plain(150000.0, 64, 31) / 32.0, 1e-12);
}

TEST(Rope, YarnAttentionFactor) {
  RopeSpec s = spec(ckpt::RopeType::yarn, 10000.0, 64);
  s.config.factor = 40.0;
  s.config.original_max_positions = 4096;
  s.config.mscale = 1.0;
  s.config.mscale_all_dim = 1.0;
  EXPECT_EQ(rope_frequencies(s).factor, 1.0f);  // DeepSeek-V3
  s.config.mscale = 0.707;
  s.config.mscale_all_dim = 0.5;
  EXPECT_NEAR(rope_frequencies(s).factor, (0.0707 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1), 1e-7);
  s.config.mscale_all_dim.reset();
  EXPECT_NEAR(rope_frequencies(s).factor, 0.1 * std::log(40.0) + 1, 1e-7);
  s.config.attention_factor = 1.25;
  EXPECT_EQ(rope_frequencies(s).factor, 1.25f);
  s.config.attention_factor.reset();
  s.config.factor = 1.0;
  EXPECT_EQ(rope_frequencies(s).factor, 1.0f);
}

TEST(Rope, YarnWithoutRampIsAStep) {
  RopeSpec s = spec(ckpt::RopeType::yarn, 10000.0, 16);
  s.config.factor = 2.0;
  s.config.original_max_positions = 64;
  s.config.beta_fast = 1000.0;
  s.config.beta_slow = 500.0;
  for (const float f : rope_frequencies(s).inv_freq) EXPECT_TRUE(std::isfinite(f));
}

TEST(Rope, RefusesDynamicByName) {
  try {
    rope_frequencies(spec(ckpt::RopeType::dynamic, 10000.0, 64));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(e.what()).find("dynamic"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::model
