// A backend on the CPU that does what another one does and notes the largest input of every dense projection.
//
// Made by app/quantize.cc around the backend of an opened model, before its weights are loaded; calibrate.cc reads what
// was noted. Owns the inner backend. One thread, as every backend.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moe/backend.h"

namespace sluice::app {

// Largest magnitude of a row of f32 or bf16 in host memory.
float row_amax(const ConstTensorView& rows, std::int64_t r);

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  // Largest magnitudes so far, by the address of the weight's codes as prepare_dense was given them. Of prepare_heads
  // (the two halves of kv_b) it is that of the first matrix of the first half, and the input is the latent row which
  // the product reads when it is not absorbed into the query.
  const std::map<const void*, float>& amax() const { return amax_; }

  Device device() const override { return inner_->device(); }
  std::string describe() const override { return inner_->describe(); }
  Buffer alloc(std::size_t bytes) override { return inner_->alloc(bytes); }
  void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream stream) override {
    inner_->copy_to_device(dst, src, bytes, stream);
  }
  void copy_to_host(void* dst, const void* src, std::size_t bytes, Stream stream) override {
    inner_->copy_to_host(dst, src, bytes, stream);
  }
  void synchronize(Stream stream) override { inner_->synchronize(stream); }

  std::unique_ptr<DenseWeight> prepare_dense(const QuantTensor& weight, Recipe recipe) override;
  std::unique_ptr<DenseWeight> prepare_heads(const std::vector<QuantTensor>& heads, DType compute) override;
  std::unique_ptr<DenseWeight> prepare_embedding(const QuantTensor& table) override {
    return inner_->prepare_embedding(table);
  }
  Buffer prepare_vector(const QuantTensor& row) override { return inner_->prepare_vector(row); }
  std::unique_ptr<RopeTable> make_rope(const std::vector<float>& inv_freq, float factor,
                                       std::int64_t max_positions) override {
    return inner_->make_rope(inv_freq, factor, max_positions);
  }
  std::unique_ptr<KvCache> make_kv(const KvSpec& spec, std::int64_t blocks) override;
  std::size_t workspace_bytes(std::int64_t tokens, std::int64_t context, std::int64_t widest) const override {
    return inner_->workspace_bytes(tokens, context, widest);
  }

  void embed(const DenseWeight& table, const std::int32_t* token_ids, const TensorView& out_f32, Stream s) override {
    inner_->embed(table, token_ids, out_f32, s);
  }
  void rms_norm(const NormArgs& args, Stream s) override { inner_->rms_norm(args, s); }
  void linear(const LinearArgs& args, Workspace& workspace, Stream s) override;
  void head_linear(const HeadLinearArgs& args, Workspace& workspace, Stream s) override {
    inner_->head_linear(args, workspace, s);
  }
  void rope(const RopeArgs& args, Stream s) override { inner_->rope(args, s); }
  void kv_store(const KvStoreArgs& args, Stream s) override;
  void attention(const AttentionArgs& args, Workspace& workspace, Stream s) override {
    inner_->attention(args, workspace, s);
  }
  void activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                const TensorView& out, Stream s) override {
    inner_->activate(spec, gate, up, out, s);
  }
  void route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream s) override {
    inner_->route(spec, input, output, s);
  }
  void add(const TensorView& into, const ConstTensorView& x, Stream s) override { inner_->add(into, x, s); }
  void add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, Stream s) override {
    inner_->add_gated(into, x, gate, s);
  }
  void gather_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, Stream s) override {
    inner_->gather_rows(x, rows, out, s);
  }
  void sum_slot_rows(const SlotSumArgs& args, Stream s) override { inner_->sum_slot_rows(args, s); }
  void sample(const SampleArgs& args, Workspace& workspace, Stream s) override { inner_->sample(args, workspace, s); }

 private:
  void note(const void* codes, ConstTensorView x, std::int64_t cols);

  std::unique_ptr<Backend> inner_;
  std::map<const DenseWeight*, const void*> codes_;
  std::vector<const void*> latent_codes_;          // [layers of latent attention] kv_b
  std::map<const KvCache*, std::int64_t> latent_;  // caches of latent attention and their value_dim
  std::size_t prepared_heads_ = 0;
  std::map<const void*, float> amax_;
};

}  // namespace sluice::app
