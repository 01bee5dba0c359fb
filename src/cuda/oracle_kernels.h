// Launches of the oracle's kernels (oracle.cu), called by oracle.cc alone. All on the null stream.
#pragma once

#include <cstdint>

#include "cuda/oracle.h"
#include "cuda/reference_dot.h"
#include "moe/spec.h"
#include "numerics/bf16.h"

namespace sluice::cuda::oracle {

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
  DotRule rule;
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
