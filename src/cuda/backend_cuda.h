// One GPU as a Backend (moe/backend.h), as far as a MoE layer needs it: memory, dense projections of the router and of
// the shared expert, routing, activation, additions. Norms, attention and sampling are refused by name: whole models
// run on the CPU.
//
// Made by make_backend; one thread at a time calls it. Operations are ordered on the stream they are given and neither
// allocate nor synchronise. Dense projections are plain fp32 loops in the order of recipe.h (reference_dot.cuh),
// correct and slow.
#pragma once

#include <string>
#include <vector>

#include "cuda/device.h"
#include "moe/backend.h"

namespace sluice::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device_index);

  Device device() const override { return {DeviceKind::cuda, info_.index}; }
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
  DeviceInfo info_;
  std::int64_t widest_inputs_ = 0;  // columns of the widest dense weight prepared so far
};

}  // namespace sluice::cuda
