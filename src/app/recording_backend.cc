#include "app/recording_backend.h"

#include <algorithm>
#include <cmath>

#include "numerics/bf16.h"

namespace sluice::app {

float row_amax(const ConstTensorView& rows, std::int64_t r) {
  float amax = 0.0f;
  for (std::int64_t c = 0; c < rows.cols; ++c) {
    const float v = rows.dtype == DType::f32 ? rows.row<float>(r)[c] : to_float(rows.row<Bf16>(r)[c]);
    amax = std::max(amax, std::fabs(v));
  }
  return amax;
}

std::unique_ptr<DenseWeight> RecordingBackend::prepare_dense(const QuantTensor& weight, Recipe recipe) {
  auto prepared = inner_->prepare_dense(weight, recipe);
  codes_[prepared.get()] = weight.codes.data;
  return prepared;
}

// Layer by layer, the keys of kv_b first and then its values.
std::unique_ptr<DenseWeight> RecordingBackend::prepare_heads(const std::vector<QuantTensor>& heads, DType compute) {
  if (prepared_heads_++ % 2 == 0) latent_codes_.push_back(heads.front().codes.data);
  return inner_->prepare_heads(heads, compute);
}

std::unique_ptr<KvCache> RecordingBackend::make_kv(const KvSpec& spec, std::int64_t blocks) {
  auto cache = inner_->make_kv(spec, blocks);
  if (spec.kind == KvSpec::Kind::mla_latent) latent_[cache.get()] = spec.values();
  return cache;
}

void RecordingBackend::linear(const LinearArgs& args, Workspace& workspace, Stream s) {
  const auto known = codes_.find(args.weight);
  if (known != codes_.end()) note(known->second, args.x, args.x.cols);
  inner_->linear(args, workspace, s);
}

void RecordingBackend::kv_store(const KvStoreArgs& args, Stream s) {
  const auto latent = latent_.find(args.cache);
  if (latent != latent_.end()) note(latent_codes_.at(static_cast<std::size_t>(args.layer)), args.k, latent->second);
  inner_->kv_store(args, s);
}

void RecordingBackend::note(const void* codes, ConstTensorView x, std::int64_t cols) {
  x.cols = cols;
  float& amax = amax_[codes];
  for (std::int64_t r = 0; r < x.rows; ++r) amax = std::max(amax, row_amax(x, r));
}

}  // namespace sluice::app
