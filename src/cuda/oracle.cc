#include "cuda/oracle.h"

#include <algorithm>
#include <utility>

#include "core/rounding.h"
#include "cuda/buffers.h"
#include "cuda/device.h"
#include "cuda/oracle_kernels.h"
#include "cuda/status.h"
#include "moe/runner_checks.h"

namespace sluice::cuda {

DotRule dot_rule(Recipe recipe, float static_scale) {
  const std::int64_t segment = recipe_info(recipe).segment_k;
  switch (recipe) {
    case Recipe::f32:
      return {RowForm::f32, segment};
    case Recipe::bf16:
      return {RowForm::bf16, segment};
    case Recipe::fp8_block:
      return {RowForm::fp8_group, segment};
    case Recipe::fp8_tensor:
      return {static_scale != 0.0f ? RowForm::fp8_static : RowForm::fp8_dynamic, segment};
    default:
      fail(ErrorCode::unsupported, "recipe " + std::string(recipe_info(recipe).name) + " on a GPU",
           "f32, bf16, fp8-tensor or fp8-block");
  }
}

namespace {

std::int64_t extent(std::int64_t rows, std::int64_t row_stride, std::int64_t cols, std::int64_t col_stride) {
  return rows == 0 || cols == 0 ? 0 : (rows - 1) * row_stride + (cols - 1) * col_stride + 1;
}

template <class Visit>
void for_each_block(const ExpertWeights& w, Visit visit) {
  for (const auto* list : {&w.gate, &w.up, &w.down}) {
    for (const QuantTensor& t : *list) {
      const MatrixView& c = t.codes;
      visit(c.data, dtype_bytes(c.dtype, extent(c.rows, c.row_stride, c.cols, c.col_stride)));
      const BlockScaleView& s = t.block_scale;
      if (s.data == nullptr) continue;
      visit(s.data, dtype_bytes(s.dtype, extent(ceil_div(c.rows, s.block_rows), s.row_stride,
                                                ceil_div(c.cols, s.block_cols), s.col_stride)));
    }
  }
  for (const auto* list : {&w.gate_bias, &w.up_bias, &w.down_bias}) {
    for (const BiasView& b : *list) visit(b.data, dtype_bytes(b.dtype, extent(1, 0, b.count, b.stride)));
  }
}

std::vector<float> download(const float* data, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  check(cudaMemcpy(out.data(), data, out.size() * sizeof(float), cudaMemcpyDeviceToHost), "reading the oracle");
  return out;
}

}  // namespace

Oracle::Oracle(const Problem& problem, const ExpertWeights& weights, int device)
    : problem_(problem),
      input_scales_(layer_input_scales(problem.recipe, weights.input_scales)),
      experts_(static_cast<std::int32_t>(weights.count())),
      device_(device) {
  check_weights(problem.layer, weights);
  dot_rule(problem.recipe, input_scales_.gemm1);
  const DeviceScope scope(device);
  upload(weights);
  const auto matrix = [&](const std::vector<QuantTensor>& list, std::size_t e) {
    if (list.empty()) return DotMatrix{};
    DotMatrix m{list[e].codes, list[e].block_scale, list[e].tensor_scale};
    m.codes.data = place(m.codes.data);
    m.scale.data = place(m.scale.data);
    return m;
  };
  const auto bias = [&](const std::vector<BiasView>& list, std::size_t e) {
    if (list.empty()) return BiasView{};
    BiasView b = list[e];
    b.data = place(b.data);
    return b;
  };
  std::vector<OracleExpert> table;
  for (std::size_t e = 0; e < weights.up.size(); ++e) {
    table.push_back({matrix(weights.gate, e), matrix(weights.up, e), matrix(weights.down, e),
                     bias(weights.gate_bias, e), bias(weights.up_bias, e), bias(weights.down_bias, e)});
  }
  table_ = device_buffer(table.size() * sizeof(OracleExpert), device);
  copy_to_device(table_.data(), table.data(), table_.bytes(), "uploading the oracle's table");
}

// Uploads each range of host memory that the views cover once.
void Oracle::upload(const ExpertWeights& weights) {
  std::vector<Range> blocks;
  for_each_block(weights, [&](const void* data, std::int64_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    if (bytes > 0) blocks.push_back({begin, begin + bytes, 0});
  });
  std::sort(blocks.begin(), blocks.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& block : blocks) {
    if (!ranges_.empty() && block.begin <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, block.end);
    } else {
      ranges_.push_back(block);
    }
  }
  std::size_t bytes = 0;
  for (Range& range : ranges_) {
    // The address within 256 bytes stays, so that elements keep their alignment.
    bytes += reinterpret_cast<std::uintptr_t>(range.begin) % 256;
    range.at = bytes;
    bytes = (bytes + static_cast<std::size_t>(range.end - range.begin) + 255) / 256 * 256;
  }
  memory_ = device_buffer(bytes, device_);
  for (const Range& range : ranges_) {
    copy_to_device(memory_.as<std::byte>() + range.at, range.begin, static_cast<std::size_t>(range.end - range.begin),
                   "uploading weights for the oracle");
  }
}

const void* Oracle::place(const void* host) const {
  if (host == nullptr) return nullptr;
  const auto* at = static_cast<const std::byte*>(host);
  const auto range =
      std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.begin <= at && at < r.end; });
  return range == ranges_.end() ? nullptr : memory_.as<std::byte>() + range->at + (at - range->begin);
}

OracleRows Oracle::rows(const OracleBatch& batch, const std::vector<std::int64_t>& tokens) const {
  const DeviceScope scope(device_);
  const LayerSpec& layer = problem_.layer;
  const auto n = static_cast<std::int64_t>(tokens.size());
  const std::int64_t count = n * batch.top_k, width = layer.width(), inner = layer.intermediate;
  if (count == 0) return {};
  const std::int64_t groups1 = ceil_div(width, kDotGroup), groups2 = ceil_div(inner, kDotGroup);
  const std::int64_t floats = count * (2 * width + 3 * inner + groups1 + groups2) + n * width;
  const Buffer scratch = device_buffer(static_cast<std::size_t>(floats) * sizeof(float), device_);
  const Buffer list = device_buffer(tokens.size() * sizeof(std::int64_t), device_);
  copy_to_device(list.data(), tokens.data(), list.bytes(), "uploading tokens");
  float* next = scratch.as<float>();
  const auto take = [&](std::int64_t elements) { return std::exchange(next, next + elements); };
  oracle::Rows r;
  r.batch = batch;
  r.tokens = list.as<std::int64_t>();
  r.count = count;
  r.experts = table_.as<OracleExpert>();
  r.local_experts = experts_;
  r.layer = layer;
  r.width = width;
  r.hidden = batch.hidden.row<Bf16>(0);
  r.hidden_stride = batch.hidden.row_stride;
  r.rule = dot_rule(problem_.recipe, input_scales_.gemm1);
  r.scale1 = input_scales_.gemm1;
  r.scale2 = input_scales_.gemm2;
  r.x = take(count * width);
  r.slot_rows = take(count * width);
  r.gate = take(count * inner);
  r.up = take(count * inner);
  r.a = take(count * inner);
  r.x_scales = take(count * groups1);
  r.a_scales = take(count * groups2);
  r.sum = take(n * width);
  oracle::compute(r);
  return {download(r.x, count * width), download(r.a, count * inner), download(r.slot_rows, count * width),
          download(r.sum, n * width)};
}

}  // namespace sluice::cuda
