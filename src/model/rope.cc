#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"

namespace sluice::model {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

std::vector<float> base_frequencies(double theta, std::int32_t rotary_dim) {
  std::vector<float> inv_freq(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    inv_freq[i] = 1.0f / power;
  }
  return inv_freq;
}

// Wavelengths beyond original / low_freq_factor are stretched by `factor`, those below original / high_freq_factor are
// kept, and between them the two are blended.
void scale_llama3(const ckpt::RopeConfig& c, std::vector<float>& inv_freq) {
  const auto original = static_cast<double>(c.original_max_positions);
  for (float& f : inv_freq) {
    const double wavelength = kTwoPi / f;
    if (wavelength < original / c.high_freq_factor) continue;
    if (wavelength > original / c.low_freq_factor) {
      f = static_cast<float>(f / c.factor);
      continue;
    }
    const double keep = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
    f = static_cast<float>((1.0 - keep) * f / c.factor + keep * f);
  }
}

// The (fractional) pair index whose angle makes `rotations` turns over the original context.
double yarn_pair(const ckpt::RopeConfig& c, std::int32_t rotary_dim, double rotations) {
  const auto original = static_cast<double>(c.original_max_positions);
  return rotary_dim * std::log(original / (rotations * kTwoPi)) / (2.0 * std::log(c.theta));
}

// Pairs below the ramp keep their frequency, pairs above it are stretched by `factor`.
void scale_yarn(const ckpt::RopeConfig& c, std::int32_t rotary_dim, std::vector<float>& inv_freq) {
  double low = yarn_pair(c, rotary_dim, c.beta_fast);
  double high = yarn_pair(c, rotary_dim, c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;  // a step instead of a ramp
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double f = inv_freq[i];
    inv_freq[i] = static_cast<float>(f / c.factor * stretched + f * (1.0 - stretched));
  }
}

float yarn_attention_factor(const ckpt::RopeConfig& c) {
  if (c.attention_factor) return static_cast<float>(*c.attention_factor);
  if (c.mscale.value_or(0.0) != 0.0 && c.mscale_all_dim.value_or(0.0) != 0.0) {
    return static_cast<float>(yarn_mscale(c.factor, *c.mscale) / yarn_mscale(c.factor, *c.mscale_all_dim));
  }
  return static_cast<float>(yarn_mscale(c.factor, 1.0));
}

}  // namespace

double yarn_mscale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

RopeFrequencies rope_frequencies(const RopeSpec& spec) {
  const ckpt::RopeConfig& c = spec.config;
  RopeFrequencies result{base_frequencies(c.theta, spec.rotary_dim), 1.0f};
  switch (c.type) {
    case ckpt::RopeType::plain:
      break;
    case ckpt::RopeType::linear:
      for (float& f : result.inv_freq) f = static_cast<float>(f / c.factor);
      break;
    case ckpt::RopeType::llama3:
      scale_llama3(c, result.inv_freq);
      break;
    case ckpt::RopeType::yarn:
      scale_yarn(c, spec.rotary_dim, result.inv_freq);
      result.factor = yarn_attention_factor(c);
      break;
    case ckpt::RopeType::dynamic:
      fail(ErrorCode::unsupported, "config.json: rope type \"dynamic\"", "default, linear, llama3 or yarn",
           "its frequencies depend on the length of each sequence; set rope_type to yarn or default in config.json");
  }
  return result;
}

}  // namespace sluice::model
