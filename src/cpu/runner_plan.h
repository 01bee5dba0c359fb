// What one call of the `cpu` runner works on: rows sorted by expert, cut into chunks, and its scratch.
//
// Made at the start of run() in the caller's workspace; nothing is allocated. Read by all workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.h"
#include "cpu/gemm.h"
#include "moe/permutation.h"
#include "moe/runner.h"
#include "numerics/bf16.h"

namespace sluice::cpu {

// Up to kChunkRows rows of one expert.
struct Chunk {
  std::int64_t expert = 0;     // local
  std::int64_t first_row = 0;  // index into the sorted routes
  std::int64_t rows = 0;
};

// Scratch of one worker.
struct WorkerScratch {
  std::byte* x = nullptr;            // [kChunkRows] packed input rows
  float* x_scales = nullptr;         // [kChunkRows, scales1] of them
  std::int64_t* tokens = nullptr;    // [kChunkRows] row numbers in `hidden`
  float* scales = nullptr;           // [kChunkRows] for weight_on_input
  std::int64_t packed_chunk = -1;    // whose rows are in x
  const void** slot_rows = nullptr;  // [k] of one token
  float* slot_weights = nullptr;     // [k]
};

struct RunSizes {
  std::int64_t tokens = 0;
  std::int32_t top_k = 0;
  std::int64_t width = 0;         // W
  std::int64_t intermediate = 0;  // I
  std::int64_t experts = 0;       // E_local
  int workers = 1;
  Element x_element = Element::bf16;
  // Recipes that quantise inputs:
  bool quantized = false;
  std::int64_t scales1 = 0;            // scales of an input row of GEMM1
  std::int64_t scales2 = 0;            // of GEMM2
  std::int64_t activated_columns = 0;  // of an activated row before it is quantised: I, filled up to whole pairs
};

struct RunPlan {
  Permutation sorted;
  const Chunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
  std::byte* intermediate = nullptr;  // [R] packed rows of I, chunk after chunk
  // Recipes that quantise inputs, else nullptr:
  Bf16* operands = nullptr;              // [valid T, operand_columns(W)] quantised hidden rows
  float* operand_scales = nullptr;       // [valid T, scales1]
  float* activated = nullptr;            // [R, activated_columns]
  float* intermediate_scales = nullptr;  // [R, scales2]
  Bf16* slot_rows = nullptr;             // [valid T * k, W] of the Sum output, unweighted; nullptr for Routes
  WorkerScratch* workers = nullptr;      // [workers]
};

// Row pitch of quantised rows, which are filled up with zeros.
constexpr std::int64_t operand_columns(std::int64_t cols) { return ceil_div(cols, kStoredK) * kStoredK; }

// Upper bound for make_plan with any routing.
std::size_t plan_bytes(const RunSizes& sizes);

// Plans the first `sizes.tokens` rows of `args`.
RunPlan make_plan(const RunSizes& sizes, const RunArgs& args);

}  // namespace sluice::cpu
