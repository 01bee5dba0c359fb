#include "cpu/runner_plan.h"

#include <algorithm>
#include <new>

namespace sluice::cpu {
namespace {

std::size_t rounded(std::int64_t bytes) { return Workspace::rounded_bytes(static_cast<std::size_t>(bytes)); }

std::int64_t routes_of(const RunSizes& s) { return s.tokens * s.top_k; }

// Each expert with rows has at most one chunk that is not full.
std::int64_t most_chunks(const RunSizes& s) {
  return routes_of(s) / kChunkRows + std::min<std::int64_t>(s.experts, routes_of(s));
}

std::int64_t worker_x_bytes(const RunSizes& s) {
  return std::min(kChunkRows, routes_of(s)) * packed_row_bytes(s.width, s.x_element);
}

std::int64_t cut_into_chunks(const Permutation& sorted, Chunk* chunks) {
  std::int64_t count = 0;
  for (std::int32_t e = 0; e < sorted.experts; ++e) {
    const std::int64_t begin = sorted.offsets[e];
    const std::int64_t rows = sorted.offsets[e + 1] - begin;
    const std::int64_t parts = ceil_div(rows, kChunkRows);
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t first = rows * p / parts;
      chunks[count++] = {e, begin + first, rows * (p + 1) / parts - first};
    }
  }
  return count;
}

WorkerScratch take_worker(const RunSizes& s, Workspace& w) {
  WorkerScratch scratch;
  scratch.x = static_cast<std::byte*>(w.take_bytes(static_cast<std::size_t>(worker_x_bytes(s))));
  scratch.x_scales = w.take<float>(kChunkRows * s.scales1);
  scratch.tokens = w.take<std::int64_t>(kChunkRows);
  scratch.scales = w.take<float>(kChunkRows);
  scratch.slot_rows = w.take<const void*>(s.top_k);
  scratch.slot_weights = w.take<float>(s.top_k);
  return scratch;
}

// Of the buffers that only recipes with quantised inputs have.
std::size_t quantized_bytes(const RunSizes& s) {
  if (!s.quantized) return 0;
  const std::int64_t routes = routes_of(s);
  return rounded(s.tokens * operand_columns(s.width) * 2) + rounded(s.tokens * s.scales1 * 4) +
         rounded(routes * s.activated_columns * 4) + rounded(routes * s.scales2 * 4);
}

void take_quantized(const RunSizes& s, std::int64_t rows, Workspace& w, RunPlan& plan) {
  if (!s.quantized) return;
  plan.operands = w.take<Bf16>(s.tokens * operand_columns(s.width));
  plan.operand_scales = w.take<float>(s.tokens * s.scales1);
  plan.activated = w.take<float>(rows * s.activated_columns);
  plan.intermediate_scales = w.take<float>(rows * s.scales2);
}

}  // namespace

std::size_t plan_bytes(const RunSizes& s) {
  const std::int64_t routes = routes_of(s);
  const std::size_t worker = rounded(worker_x_bytes(s)) + rounded(kChunkRows * s.scales1 * 4) +
                             rounded(kChunkRows * 8) + rounded(kChunkRows * 4) +
                             rounded(s.top_k * std::int64_t{sizeof(void*)}) + rounded(s.top_k * std::int64_t{4});
  return permutation_bytes(s.tokens, s.top_k, static_cast<std::int32_t>(s.experts)) +
         rounded(most_chunks(s) * std::int64_t{sizeof(Chunk)}) +
         rounded(routes * packed_row_bytes(s.intermediate, s.x_element)) + rounded(routes * s.width * 2) +
         rounded(s.workers * std::int64_t{sizeof(WorkerScratch)}) + static_cast<std::size_t>(s.workers) * worker +
         quantized_bytes(s);
}

RunPlan make_plan(const RunSizes& s, const RunArgs& args) {
  Workspace& w = *args.workspace;
  RunPlan plan;
  plan.sorted = permute(args.ids, s.tokens, args.top_k, args.slots, w);
  Chunk* chunks = w.take<Chunk>(most_chunks(s));
  plan.chunk_count = cut_into_chunks(plan.sorted, chunks);
  plan.chunks = chunks;
  const std::int64_t rows = plan.sorted.total();
  plan.intermediate = w.take<std::byte>(rows * packed_row_bytes(s.intermediate, s.x_element));
  take_quantized(s, rows, w, plan);
  if (args.sum) plan.slot_rows = w.take<Bf16>(routes_of(s) * s.width);
  plan.workers = w.take<WorkerScratch>(s.workers);
  for (int i = 0; i < s.workers; ++i) new (plan.workers + i) WorkerScratch(take_worker(s, w));
  return plan;
}

}  // namespace sluice::cpu
