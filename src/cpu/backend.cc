#include "cpu/backend.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cpu/attention.h"
#include "cpu/dense.h"
#include "cpu/head_linear.h"
#include "cpu/kv_cache.h"
#include "cpu/ops_apply.h"
#include "cpu/ops_embedding.h"
#include "cpu/rope.h"
#include "cpu/sample.h"
#include "cpu/slot_sum.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kRoutedRowsPerTask = 8;

Isa checked(Isa isa) {
  if (!supports(detect_features(), isa)) {
    fail(ErrorCode::unsupported, "this processor has no " + std::string(isa_name(isa)),
         "one of the instruction sets that `doctor` lists");
  }
  return isa;
}

}  // namespace

CpuBackend::CpuBackend(ThreadPool& pool, Isa isa) : pool_(pool), isa_(checked(isa)), kernels_(ops_kernels(isa)) {}

std::string CpuBackend::describe() const {
  const int threads = pool_.size();
  return "cpu, " + std::string(isa_name(isa_)) + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

Buffer CpuBackend::alloc(std::size_t bytes) { return host_buffer(bytes); }

void CpuBackend::copy_to_device(void* dst, const void* src, std::size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

void CpuBackend::copy_to_host(void* dst, const void* src, std::size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

void CpuBackend::synchronize(Stream) {}

std::unique_ptr<DenseWeight> CpuBackend::prepare_dense(const QuantTensor& weight, Recipe recipe) {
  most_inputs_ = std::max(most_inputs_, weight.codes.cols);
  return make_dense(weight, recipe, pool_, line_kernels(isa_));
}

std::unique_ptr<DenseWeight> CpuBackend::prepare_heads(const std::vector<QuantTensor>& heads, DType compute) {
  auto weight = std::make_unique<HeadWeights>(heads, compute, pool_);
  head_scratch_ = std::max(head_scratch_, weight->scratch_bytes_per_token());
  return weight;
}

std::unique_ptr<DenseWeight> CpuBackend::prepare_embedding(const QuantTensor& table) {
  return std::make_unique<CpuEmbedding>(table, pool_);
}

Buffer CpuBackend::prepare_vector(const QuantTensor& row) {
  if (row.codes.rows != 1) {
    fail(ErrorCode::usage, "a vector of " + std::to_string(row.codes.rows) + " rows", "one row");
  }
  Buffer out = host_buffer(static_cast<std::size_t>(row.codes.cols) * sizeof(float));
  decode_row(row, 0, out.as<float>());
  return out;
}

std::unique_ptr<RopeTable> CpuBackend::make_rope(const std::vector<float>& inv_freq, float factor,
                                                 std::int64_t max_positions) {
  return std::make_unique<CpuRopeTable>(inv_freq, factor, max_positions, pool_);
}

std::unique_ptr<KvCache> CpuBackend::make_kv(const KvSpec& spec, std::int64_t blocks) {
  return std::make_unique<CpuKvCache>(spec, blocks);
}

std::size_t CpuBackend::workspace_bytes(std::int64_t tokens, std::int64_t, std::int64_t widest) const {
  const std::int64_t inputs = most_inputs_ > 0 ? most_inputs_ : widest;
  return std::max({attention_workspace_bytes(pool_.size()), sample_workspace_bytes(pool_.size(), widest),
                   linear_workspace_bytes(tokens, inputs),
                   Workspace::rounded_bytes(static_cast<std::size_t>(tokens * head_scratch_))});
}

void CpuBackend::embed(const DenseWeight& table, const std::int32_t* token_ids, const TensorView& out_f32, Stream) {
  own_embedding(table).look_up(token_ids, out_f32, kernels_, pool_);
}

void CpuBackend::rms_norm(const NormArgs& args, Stream) { norm_rows(args, kernels_, pool_); }

void CpuBackend::linear(const LinearArgs& args, Workspace& workspace, Stream) {
  sluice::cpu::linear(gemm_kernels(isa_), pool_, args, workspace);
}

void CpuBackend::head_linear(const HeadLinearArgs& args, Workspace& workspace, Stream) {
  sluice::cpu::head_linear(gemm_kernels(isa_), pool_, args, workspace);
}

void CpuBackend::rope(const RopeArgs& args, Stream) { apply_rope(args, kernels_, pool_); }

void CpuBackend::kv_store(const KvStoreArgs& args, Stream) { store_kv(args, kernels_, pool_); }

void CpuBackend::attention(const AttentionArgs& args, Workspace& workspace, Stream) {
  attend(args, kernels_, pool_, workspace);
}

void CpuBackend::activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                          const TensorView& out, Stream) {
  activate_rows(spec, gate, up, out, kernels_, pool_);
}

void CpuBackend::route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream) {
  pool_.parallel_for(input.logits.rows, kRoutedRowsPerTask,
                     [&](std::int64_t begin, std::int64_t end, int) { route_rows(spec, input, output, begin, end); });
}

void CpuBackend::add(const TensorView& into, const ConstTensorView& x, Stream) { add_rows(into, x, kernels_, pool_); }

void CpuBackend::add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, Stream) {
  add_gated_rows(into, x, gate, pool_);
}

void CpuBackend::gather_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, Stream) {
  copy_rows(x, rows, out, pool_);
}

void CpuBackend::sum_slot_rows(const SlotSumArgs& args, Stream) {
  sluice::cpu::sum_slot_rows(args, gemm_kernels(isa_), pool_);
}

void CpuBackend::sample(const SampleArgs& args, Workspace& workspace, Stream) {
  sample_rows(args, kernels_, pool_, workspace);
}

}  // namespace sluice::cpu
