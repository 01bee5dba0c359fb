// The steps of one call of the `cpu` runner, in order: GEMM1 with activation, GEMM2, weighted sum; with what each reads
// quantised before it where the recipe says so.
//
// Made and used by CpuRunner::run only. Each step is one parallel loop over the pool; between them the pool is the
// barrier. Which worker does what is decided at run time and changes no bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "cpu/gemm.h"
#include "cpu/pieces.h"
#include "cpu/runner_experts.h"
#include "cpu/runner_plan.h"
#include "moe/runner.h"

namespace sluice::cpu {

struct RunSteps {
  const CpuExperts& experts;
  const RunArgs& args;
  const RunPlan& plan;
  const GemmKernels& kernels;
  ThreadPool& pool;
  std::int64_t valid_tokens;

  void quantize_hidden() const;      // hidden or quantised rows > operands; nothing for recipes with bf16 inputs
  void gemm1() const;                // hidden or operands > intermediate or activated rows
  void quantize_activated() const;   // activated rows > intermediate
  void gemm2() const;                // intermediate > slot rows, or the Routes output
  void combine() const;              // slot rows > Sum output
  void zero_skipped_routes() const;  // rows of the Routes output that no expert wrote
  void zero_padding() const;         // output rows from valid_tokens on
  void record_stages() const;        // debugging: computes GEMM1 again and allocates

 private:
  PieceSplit pieces(std::int64_t pairs) const;
  PackedRows input_rows(std::int64_t chunk, WorkerScratch& scratch) const;
  // Source rows of what is quantised: hidden row of a route, activated row r of the sorted routes.
  InputRow hidden_row(std::int64_t t) const;
  InputRow activated_row(std::int64_t r) const;
  void gather_input_scales(const Chunk& chunk, WorkerScratch& scratch) const;
  void activate_pair(const Chunk& chunk, std::int64_t pair, const float* token_scales, const PairTotals& totals) const;
  PackedRows intermediate_rows(const Chunk& chunk) const;
  // Outputs of GEMM2 at the first column of a pair.
  StoreArgs slot_rows(std::int64_t pair) const;
  void fetch_slot_rows(const Chunk& chunk, std::int64_t pair) const;
  void store_slot_rows(const Chunk& chunk, std::int64_t pair, const PackedRows& x, const PairTotals& totals) const;
  void combine_token(std::int64_t t, WorkerScratch& scratch) const;
  void record_operands(std::string_view name, const Chunk& chunk, const PackedRows& packed,
                       const InputRounding& rounding, FunctionRef<InputRow(std::int64_t)> source) const;
  void record_chunk(const Chunk& chunk, std::int64_t index, WorkerScratch& scratch) const;

  std::int64_t activated_columns() const { return experts.gemm1.pairs * experts.gemm1_columns(); }
  std::int64_t width() const { return experts.layer.width(); }
  std::int64_t intermediate() const { return experts.layer.intermediate; }
};

}  // namespace sluice::cpu
