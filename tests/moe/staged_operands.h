// Second half of the staged proof (staged_proof.h): what a quantised row must be when its values are known up to a
// bound. Written from recipe.h and the formulas in numerics/, without the reference runner.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "moe/reference_operands.h"
#include "moe/stage_dump.h"
#include "moe/stages.h"
#include "numerics/bf16.h"
#include "numerics/block_fp8.h"
#include "numerics/block_mx.h"
#include "numerics/block_nvfp4.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice::testing {

// A number that is known to +- bound.
struct Known {
  double value = 0.0;
  double bound = 0.0;
  double evaluation = 0.0;  // the part of the bound that is not from sums: fp32 activations that cancel
};

// Known, after one rounding to bf16.
inline Known rounded_to_bf16(Known k) {
  const double low = round_to_bf16(static_cast<float>(k.value - k.bound));
  const double high = round_to_bf16(static_cast<float>(k.value + k.bound));
  return {(low + high) / 2, (high - low) / 2, k.evaluation};
}

struct StageCount {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;  // outside of what rounding allows
  std::int64_t ties = 0;   // allowed by the error of the sums, but not the rounding of the exact value
  std::int64_t vague = 0;  // the same, allowed by the error of the fp32 activation alone (Known::evaluation)
  std::string first;       // the first wrong one, in words

  void add(bool ok, const std::string& where, std::int64_t index = -1) {
    ++checked;
    if (ok || wrong++ > 0) return;
    first = where + (index >= 0 ? " at " + std::to_string(index) : "");
  }
  void merge(const StageCount& other) {
    if (wrong == 0) first = other.first;
    checked += other.checked;
    wrong += other.wrong;
    ties += other.ties;
    vague += other.vague;
  }
};

// One recorded row of GEMM input: codes and scales as the runner has them, and the operands that they stand for.
struct RecordedRow {
  std::vector<float> values;  // as recorded under the stage's own name
  std::vector<std::uint8_t> codes, block_scales;
  std::vector<float> sum_scales;
  std::vector<float> operands;  // code * block scale; the values themselves in f32 and bf16
};

inline RecordedRow recorded_row(const StageDump& dump, const std::string& stage, std::int64_t route,
                                reference::RowFormat format, std::int64_t cols) {
  using reference::RowFormat;
  const auto name = [&](std::string_view suffix) { return stage + std::string(suffix); };
  RecordedRow r{dump.row<float>(stage, route),
                dump.row<std::uint8_t>(name(stage::kCodes), route),
                dump.row<std::uint8_t>(name(stage::kBlockScales), route),
                dump.row<float>(name(stage::kSumScales), route),
                {}};
  const reference::RowExtents n = reference::row_extents(format, cols);
  const bool complete = static_cast<std::int64_t>(r.values.size()) == cols &&
                        static_cast<std::int64_t>(r.codes.size()) == n.code_bytes &&
                        static_cast<std::int64_t>(r.block_scales.size()) == n.block_scales &&
                        static_cast<std::int64_t>(r.sum_scales.size()) == n.sum_scales;
  if (!complete) return {};
  r.operands = r.values;
  for (std::int64_t c = 0; c < cols; ++c) {
    if (format == RowFormat::nvfp4) {
      r.operands[c] = to_float(unpack_e2m1(r.codes[c / 2], c)) * to_float(E4m3{r.block_scales[c / kNvfp4Block]});
    } else if (format == RowFormat::mxfp8) {
      r.operands[c] = to_float(E4m3{r.codes[c]}) * to_float(E8m0{r.block_scales[c / kMxBlock]});
    } else if (format != RowFormat::f32 && format != RowFormat::bf16) {
      r.operands[c] = to_float(E4m3{r.codes[c]});
    }
  }
  return r;
}

namespace detail {

constexpr double kUnit = 0x1p-24;

struct Range {
  float low = 0.0f, exact = 0.0f, high = 0.0f;
};

// Largest magnitude of columns [begin, end).
inline Range amax_of(const std::vector<Known>& row, std::int64_t begin, std::int64_t end) {
  double low = 0.0, exact = 0.0, high = 0.0;
  for (std::int64_t c = begin; c < end; ++c) {
    const double size = std::fabs(row[c].value);
    low = std::max(low, size - row[c].bound);
    exact = std::max(exact, size);
    high = std::max(high, size + row[c].bound);
  }
  return {static_cast<float>(low), static_cast<float>(exact), static_cast<float>(high)};
}

// Whether `got` is encode(v) for a v within the bound, where encode never falls with v; `slack` = relative error of
// the fp32 arithmetic that leads to the argument of encode.
template <class Encode>
void check_code(StageCount& count, const Known& k, double factor, double slack, double got, Encode encode,
                const std::string& where, std::int64_t index) {
  const double value = k.value * factor;
  const auto code = [&](double moved) { return static_cast<double>(encode(static_cast<float>(value + moved))); };
  const double bound = k.bound * factor + slack * std::fabs(value) + 0x1p-149;
  const bool ok = code(-bound) <= got && got <= code(bound);
  count.add(ok, where, index);
  if (!ok || got == code(0.0)) return;
  const double evaluation = k.evaluation * factor;
  const bool vague = code(-evaluation) <= got && got <= code(evaluation);
  ++(vague ? count.vague : count.ties);
}

inline float e4m3_value(float v) { return to_float(to_e4m3(v)); }
inline float e2m1_value(float v) { return to_float(to_e2m1(v)); }

}  // namespace detail

// What one scale of a block must be, as its decode multiplier; `rule` never falls with amax.
template <class Rule>
void check_scale(StageCount& count, const detail::Range& amax, double slack, double got, Rule rule,
                 const std::string& where, std::int64_t block) {
  const double low = rule(static_cast<float>(amax.low * (1 - slack)));
  const double high = rule(static_cast<float>(amax.high * (1 + slack)));
  count.add(low <= got && got <= high, where + " scale", block);
}

// Checks the scales of a recorded row against its known values.
inline void check_row_scales(const std::vector<Known>& row, const RecordedRow& got, reference::RowFormat format,
                             float static_scale, const std::string& where, StageCount& count) {
  using reference::RowFormat;
  using namespace detail;
  const auto cols = static_cast<std::int64_t>(row.size());
  const auto amax = [&](std::int64_t b, std::int64_t block) {
    return amax_of(row, b * block, std::min((b + 1) * block, cols));
  };
  const auto blocks = static_cast<std::int64_t>(got.block_scales.size());
  if (static_scale != 0.0f) count.add(got.sum_scales.at(0) == static_scale, where + " static scale");
  if (format == RowFormat::fp8_row && static_scale == 0.0f) {
    check_scale(count, amax(0, cols), 2 * kUnit, got.sum_scales[0], fp8_scale, where, 0);
  }
  for (std::int64_t b = 0; format == RowFormat::fp8_group && b < static_cast<std::int64_t>(got.sum_scales.size());
       ++b) {
    const auto rule = [](float v) { return fp8_floored_scale(v, kFp8ActivationAmaxFloor); };
    check_scale(count, amax(b, 128), 2 * kUnit, got.sum_scales[b], rule, where, b);
  }
  for (std::int64_t b = 0; format == RowFormat::nvfp4 && b < blocks; ++b) {
    const auto rule = [&](float v) { return e4m3_value(1.0f / static_scale * v / kE2m1Max); };
    check_scale(count, amax(b, kNvfp4Block), 4 * kUnit, to_float(E4m3{got.block_scales[b]}), rule, where, b);
  }
  for (std::int64_t b = 0; format == RowFormat::mxfp8 && b < blocks; ++b) {
    const auto rule = [](float v) { return to_float(to_e8m0_up(v / kE4m3Max)); };
    check_scale(count, amax(b, kMxBlock), 2 * kUnit, to_float(E8m0{got.block_scales[b]}), rule, where, b);
  }
}

// Checks each code under the scale that the runner chose (a scale next to a tie moves all codes of its block).
inline void check_row_codes(const std::vector<Known>& row, const RecordedRow& got, reference::RowFormat format,
                            float static_scale, const std::string& where, StageCount& count) {
  using reference::RowFormat;
  using namespace detail;
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(row.size()); ++c) {
    const Known& k = row[c];
    if (format == RowFormat::f32) {
      count.add(std::fabs(got.values[c] - k.value) <= k.bound + kUnit * std::fabs(k.value), where, c);
    } else if (format == RowFormat::bf16) {
      check_code(count, k, 1.0, 0.0, got.values[c], round_to_bf16, where, c);
    } else if (format == RowFormat::nvfp4) {
      const double s = to_float(E4m3{got.block_scales[c / kNvfp4Block]});
      const double m = s == 0.0 ? FLT_MAX : 1.0 / (s * static_scale);
      check_code(count, k, m, 5 * kUnit, to_float(unpack_e2m1(got.codes[c / 2], c)), e2m1_value, where, c);
    } else if (format == RowFormat::mxfp8) {
      const double s = to_float(E8m0{got.block_scales[c / kMxBlock]});
      check_code(count, k, 1.0 / s, kUnit, to_float(E4m3{got.codes[c]}), e4m3_value, where, c);
    } else {
      const double s = got.sum_scales[format == RowFormat::fp8_group ? c / 128 : 0];
      check_code(count, k, 1.0 / s, 2 * kUnit, to_float(E4m3{got.codes[c]}), e4m3_value, where, c);
    }
  }
}

}  // namespace sluice::testing
