// A backend with just what MoeLayer calls: the router's linear and routing, on plain host memory. Everything else
// throws.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "moe/backend.h"

namespace sluice::testing {

class PlainWeight final : public DenseWeight {
 public:
  PlainWeight(std::int64_t n, std::int64_t k, std::vector<float> values_) : values(std::move(values_)) {
    rows = n;
    cols = k;
  }
  std::vector<float> values;  // [rows, cols]
};

class RouterBackend : public Backend {
 public:
  static constexpr std::size_t kScratchBytes = 256;

  Device device() const override { return {}; }
  std::string describe() const override { return "router only"; }
  std::size_t workspace_bytes(std::int64_t /*tokens*/, std::int64_t /*context*/,
                              std::int64_t /*widest*/) const override {
    return kScratchBytes;
  }
  void linear(const LinearArgs& args, Workspace& workspace, Stream /*s*/) override {
    workspace.take_bytes(kScratchBytes);
    const auto& weight = dynamic_cast<const PlainWeight&>(*args.weight);
    for (std::int64_t t = 0; t < args.x.rows; ++t) {
      for (std::int64_t n = 0; n < weight.rows; ++n) {
        float y = args.bias != nullptr ? args.bias[n] : 0.0f;
        for (std::int64_t c = 0; c < weight.cols; ++c)
          y += args.x.row<float>(t)[c] * weight.values[n * weight.cols + c];
        args.y.row<float>(t)[n] = y;
      }
    }
    ++linear_calls;
  }
  void route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream /*s*/) override {
    route_rows(spec, input, output, 0, input.logits.rows);
  }

  Buffer alloc(std::size_t /*bytes*/) override { none(); }
  void copy_to_device(void* /*dst*/, const void* /*src*/, std::size_t /*bytes*/, Stream /*stream*/) override { none(); }
  void copy_to_host(void* /*dst*/, const void* /*src*/, std::size_t /*bytes*/, Stream /*stream*/) override { none(); }
  void synchronize(Stream /*stream*/) override { none(); }
  std::unique_ptr<DenseWeight> prepare_dense(const QuantTensor& /*w*/, Recipe /*recipe*/) override { none(); }
  std::unique_ptr<DenseWeight> prepare_heads(const std::vector<QuantTensor>& /*w*/, DType /*compute*/) override {
    none();
  }
  std::unique_ptr<DenseWeight> prepare_embedding(const QuantTensor& /*table*/) override { none(); }
  Buffer prepare_vector(const QuantTensor& /*row*/) override { none(); }
  std::unique_ptr<RopeTable> make_rope(const std::vector<float>& /*f*/, float /*factor*/, std::int64_t /*n*/) override {
    none();
  }
  std::unique_ptr<KvCache> make_kv(const KvSpec& /*spec*/, std::int64_t /*blocks*/) override { none(); }
  void embed(const DenseWeight& /*t*/, const std::int32_t* /*ids*/, const TensorView& /*out*/, Stream /*s*/) override {
    none();
  }
  void rms_norm(const NormArgs& /*args*/, Stream /*s*/) override { none(); }
  void head_linear(const HeadLinearArgs& /*args*/, Workspace& /*w*/, Stream /*s*/) override { none(); }
  void rope(const RopeArgs& /*args*/, Stream /*s*/) override { none(); }
  void kv_store(const KvStoreArgs& /*args*/, Stream /*s*/) override { none(); }
  void attention(const AttentionArgs& /*args*/, Workspace& /*w*/, Stream /*s*/) override { none(); }
  void activate(const ActivationSpec& /*a*/, const ConstTensorView& /*g*/, const ConstTensorView& /*u*/,
                const TensorView& /*out*/, Stream /*s*/) override {
    none();
  }
  void add(const TensorView& /*into*/, const ConstTensorView& /*x*/, Stream /*s*/) override { none(); }
  void add_gated(const TensorView& /*into*/, const ConstTensorView& /*x*/, const ConstTensorView& /*gate*/,
                 Stream /*s*/) override {
    none();
  }
  void gather_rows(const ConstTensorView& /*x*/, const std::int32_t* /*rows*/, const TensorView& /*out*/,
                   Stream /*s*/) override {
    none();
  }
  void sum_slot_rows(const SlotSumArgs& /*args*/, Stream /*s*/) override { none(); }
  void sample(const SampleArgs& /*args*/, Workspace& /*w*/, Stream /*s*/) override { none(); }

  int linear_calls = 0;

 private:
  [[noreturn]] static void none() { fail(ErrorCode::unsupported, "the router backend of the tests has only a router"); }
};

}  // namespace sluice::testing
