// FP8 (e4m3) with float32 scales: per tensor, per row, per 128 x 128 block, per 1 x 128 group. Reference quantisers,
// slow and obvious. Called by the exporter, the reference runner and tests. Pure functions: thread-safe.
//
// code = e4m3(value / scale), saturating; the scale is the decode multiplier that is stored. Kernels that multiply by
// 1 / scale instead may differ by one code where the quotient lies within a float32 rounding of a tie.
//
//   where        scale                            source
//   weight block max(amax, 1e-4) / 448            DeepSeek-style weight quantiser, as in FlashInfer's FP8 block tests
//   activation   max(amax, 1e-10) / 448           DeepSeek-style 1 x 128 activation quantiser (some use 1e-12)
//   row, tensor  max(amax / 448, 2^-126),         per-tensor and per-token rules of FlashInfer's CUTLASS runner;
//                or 1 when amax is 0              2^-126 is ours: it keeps a stored scale normal
// Zero blocks have zero codes under each rule. NaN, infinity: see quant_matrix.h; a NaN becomes the NaN code.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/fp8.h"
#include "numerics/quant_matrix.h"

namespace sluice {

inline constexpr float kFp8WeightAmaxFloor = 1e-4f;
inline constexpr float kFp8ActivationAmaxFloor = 1e-10f;

// Scale of a block (or group) with a floor under its amax.
float fp8_floored_scale(float amax, float amax_floor);

// Scale of a whole row or matrix.
float fp8_scale(float amax);

// e4m3 code of a value under a decode multiplier.
E4m3 quantize_fp8_value(float value, float scale);

// One row under one scale, for static per-tensor input scales. codes [cols].
void quantize_fp8_row_with_scale(std::span<const float> row, float scale, std::span<std::uint8_t> codes);

// 1 x 128 groups of one row: codes [cols], scales [ceil(cols / 128)].
void quantize_fp8_group_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<float> scales,
                            float amax_floor = kFp8ActivationAmaxFloor);

QuantMatrix quantize_fp8_tensor(const FloatView& values);
QuantMatrix quantize_fp8_rows(const FloatView& values);
QuantMatrix quantize_fp8_groups(const FloatView& values, float amax_floor = kFp8ActivationAmaxFloor);
QuantMatrix quantize_fp8_blocks(const FloatView& values, float amax_floor = kFp8WeightAmaxFloor);

}  // namespace sluice
