// Launches of the oracle's kernels (oracle.cu), called by oracle.cc alone. All on the null stream.
#pragma once

#include <cstdint>

#include "cuda/oracle.h"
#include "moe/spec.h"
#include "numerics/bf16.h"

namespace sluice::cuda::oracle {

enum class RowFormat : std::uint8_t { bf16, fp8_group, fp8_static, fp8_dynamic };

// Rows of one call: row i is slot i % k of token tokens[i / k].
struct Rows {
  OracleBatch batch;
  const std::int64_t* tokens = nullptr;   // [n]
  std::int64_t count = 0;                 // n * k
  const OracleExpert* experts = nullptr;  // [E_local]
  std::int32_t local_experts = 0;
  LayerSpec layer;
  std::int64_t width = 0;        // H
  const Bf16* hidden = nullptr;  // [T, hidden_stride]
  std::int64_t hidden_stride = 0;
  std::int64_t segment = 0;  // S of the accumulation
  bool block_scaled = false;
  RowFormat format = RowFormat::bf16;
  float scale1 = 0.0f, scale2 = 0.0f;  // static scales
  float* x = nullptr;                  // [count, H] operands
  float* x_scales = nullptr;           // [count, ceil(H / 128)]
  float* gate = nullptr;               // [count, I]
  float* up = nullptr;                 // [count, I]
  float* a = nullptr;                  // [count, I] operands
  float* a_scales = nullptr;           // [count, ceil(I / 128)]
  float* slot_rows = nullptr;          // [count, H]
  float* sum = nullptr;                // [n, H]
};

void compute(const Rows& rows);

}  // namespace sluice::cuda::oracle
