// The CPU as a Backend (moe/backend.h): everything of a model except the experts, on a thread pool that the caller
// owns.
//
// Made once by the wiring; one thread at a time calls it. Streams are ignored: work is done when a call returns. The
// instruction set is a constructor argument, so that one process can run and compare several. Bits of a row depend on
// the row, its position, its keys and the instruction set; not on the batch, on chunking or on the number of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/features.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

class CpuBackend final : public Backend {
 public:
  // `pool` is not owned and outlives the backend. The processor must have `isa` (features.h: supports).
  CpuBackend(ThreadPool& pool, Isa isa);

  Isa isa() const { return isa_; }
  ThreadPool& pool() const { return pool_; }

  Device device() const override { return {}; }
  std::string describe() const override;

  Buffer alloc(std::size_t bytes) override;
  void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream stream) override;
  void copy_to_host(void* dst, const void* src, std::size_t bytes, Stream stream) override;
  void synchronize(Stream stream) override;

  std::unique_ptr<DenseWeight> prepare_dense(const QuantTensor& weight, Recipe recipe) override;
  std::unique_ptr<DenseWeight> prepare_heads(const std::vector<QuantTensor>& heads, DType compute) override;
  std::unique_ptr<DenseWeight> prepare_embedding(const QuantTensor& table) override;
  Buffer prepare_vector(const QuantTensor& row) override;
  std::unique_ptr<RopeTable> make_rope(const std::vector<float>& inv_freq, float factor,
                                       std::int64_t max_positions) override;
  std::unique_ptr<KvCache> make_kv(const KvSpec& spec, std::int64_t blocks) override;

  // `widest` is the longest row of any operand, the vocabulary included. Called after the weights are prepared, it does
  // not ask for the memory of a projection from the vocabulary, which no model has.
  std::size_t workspace_bytes(std::int64_t tokens, std::int64_t context, std::int64_t widest) const override;

  void embed(const DenseWeight& table, const std::int32_t* token_ids, const TensorView& out_f32, Stream s) override;
  void rms_norm(const NormArgs& args, Stream s) override;
  void linear(const LinearArgs& args, Workspace& workspace, Stream s) override;
  void head_linear(const HeadLinearArgs& args, Workspace& workspace, Stream s) override;
  void rope(const RopeArgs& args, Stream s) override;
  void kv_store(const KvStoreArgs& args, Stream s) override;
  void attention(const AttentionArgs& args, Workspace& workspace, Stream s) override;
  void activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                const TensorView& out, Stream s) override;
  void route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream s) override;
  void add(const TensorView& into, const ConstTensorView& x, Stream s) override;
  void add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, Stream s) override;
  void gather_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, Stream s) override;
  void sum_slot_rows(const SlotSumArgs& args, Stream s) override;
  void sample(const SampleArgs& args, Workspace& workspace, Stream s) override;

 private:
  ThreadPool& pool_;
  Isa isa_;
  const OpsKernels& kernels_;
  std::int64_t most_inputs_ = 0;   // columns of the widest dense weight prepared so far
  std::int64_t head_scratch_ = 0;  // bytes a token that head_linear needs for the weights prepared so far
};

}  // namespace sluice::cpu
