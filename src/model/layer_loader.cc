#include "model/layer_loader.h"

#include <string>

#include "core/error.h"
#include "moe/weight_slices.h"
#include "moe/weight_values.h"

namespace sluice::model {

std::unique_ptr<DenseWeight> LayerLoader::dense(Role role, const Extent& rows, const Extent& cols) {
  const Recipe stored = source_.tensor_recipe(role_name(role), layer_);
  return dense(role, rows, cols, options_.compute == DType::f32 ? Recipe::f32 : stored);
}

std::unique_ptr<DenseWeight> LayerLoader::dense(Role role, const Extent& rows, const Extent& cols, Recipe recipe) {
  QuantTensor part = tensor(role, rows.all, cols.all);
  std::vector<std::byte> scales;
  if (!rows.whole()) part = rows_of(part, rows.part, scales);
  if (!cols.whole()) part = columns_of(part, cols.part);
  return prepared(part, recipe);
}

std::unique_ptr<DenseWeight> LayerLoader::router(std::int64_t experts, std::int64_t cols) {
  const QuantTensor values = tensor(Role::router, experts, cols);
  require_finite(Role::router, values);
  return prepared(values, Recipe::f32);
}

QuantTensor LayerLoader::tensor(Role role, std::int64_t rows, std::int64_t cols) {
  return source_.tensor(role_name(role), layer_, rows, cols);
}

std::unique_ptr<DenseWeight> LayerLoader::heads(const std::vector<QuantTensor>& weights) {
  auto weight = options_.backend->prepare_heads(weights, options_.compute);
  bytes_ += weight->resident_bytes;
  return weight;
}

Buffer LayerLoader::vector(Role role, const Extent& cols) {
  const QuantTensor values = tensor(role, 1, cols.all);
  require_finite(role, values);
  Buffer buffer = options_.backend->prepare_vector(columns_of(values, cols.part));
  bytes_ += static_cast<std::int64_t>(buffer.bytes());
  return buffer;
}

std::unique_ptr<DenseWeight> LayerLoader::prepared(const QuantTensor& values, Recipe recipe) {
  auto weight = options_.backend->prepare_dense(values, recipe);
  bytes_ += weight->resident_bytes;
  return weight;
}

void LayerLoader::require_finite(Role role, const QuantTensor& values) const {
  const std::int64_t row = first_non_finite_row(values);
  if (row < 0) return;
  const std::string place = layer_ == ckpt::kOutsideLayers ? "" : "layer " + std::to_string(layer_) + ": ";
  fail(ErrorCode::bad_input,
       place + std::string(role_name(role)) + ": row " + std::to_string(row) + " holds NaN or infinity",
       "finite values", "get the checkpoint again; `sluice check --weights` lists all damaged tensors");
}

}  // namespace sluice::model
