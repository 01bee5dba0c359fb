#include "cuda/experts_hopper.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/buffers.h"
#include "cuda/device.h"
#include "cuda/staging.h"
#include "cuda/status.h"
#include "moe/runner_checks.h"
#include "numerics/bf16.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kScaleBlock = 128;
constexpr std::int64_t kTransposeRows = 32;
constexpr std::size_t kArrayAlign = 256;

// Elements of a matrix that are already in the packed element type, gathered row by row. Columns apart from each other
// are taken in tiles, so that a transposed file is read along its lines.
template <class Element>
void gather_rows(const MatrixView& m, std::int64_t first, std::int64_t count, std::byte* to) {
  const auto* from = static_cast<const Element*>(m.data);
  auto* out = reinterpret_cast<Element*>(to);
  for (std::int64_t begin = 0; begin < count; begin += kTransposeRows) {
    const std::int64_t end = std::min(begin + kTransposeRows, count);
    if (m.col_stride == 1) {
      for (std::int64_t n = begin; n < end; ++n) {
        std::memcpy(out + n * m.cols, from + (first + n) * m.row_stride,
                    static_cast<std::size_t>(m.cols) * sizeof(Element));
      }
      continue;
    }
    for (std::int64_t c = 0; c < m.cols; ++c) {
      for (std::int64_t n = begin; n < end; ++n) {
        out[n * m.cols + c] = from[(first + n) * m.row_stride + c * m.col_stride];
      }
    }
  }
}

// Rows as the recipe reads weights: bf16, rounded once from whatever the file has, or e4m3 codes as they are.
void gather_weight_rows(const QuantTensor& w, std::int64_t first, std::int64_t count, std::byte* to) {
  if (w.codes.dtype == DType::e4m3) return gather_rows<std::uint8_t>(w.codes, first, count, to);
  if (w.codes.dtype == DType::bf16 && w.block_scale.data == nullptr && w.tensor_scale == 1.0f) {
    return gather_rows<std::uint16_t>(w.codes, first, count, to);
  }
  std::vector<float> row(static_cast<std::size_t>(w.codes.cols));
  auto* out = reinterpret_cast<Bf16*>(to);
  for (std::int64_t n = 0; n < count; ++n) {
    decode_row(w, first + n, row.data());
    for (std::int64_t c = 0; c < w.codes.cols; ++c) out[n * w.codes.cols + c] = to_bf16(row[c]);
  }
}

// One number a row, or one a 128 x 128 block, in fp32.
std::vector<float> scales_of(Recipe recipe, const QuantTensor& w, float tensor_scale) {
  std::vector<float> scales;
  const std::int64_t rows = w.codes.rows, cols = w.codes.cols;
  if (recipe == Recipe::fp8_tensor) {
    for (std::int64_t n = 0; n < rows; ++n) scales.push_back(decode_block_scale(w.block_scale, n, 0) * tensor_scale);
  }
  if (recipe == Recipe::fp8_block) {
    if (w.block_scale.block_rows % kScaleBlock != 0) {
      fail(ErrorCode::unsupported, "fp8 weights with a scale per " + std::to_string(w.block_scale.block_rows) + " rows",
           "blocks of 128 x 128", "the CPU runner reads any number of rows a block");
    }
    for (std::int64_t n = 0; n < rows; n += kScaleBlock) {
      for (std::int64_t c = 0; c < cols; c += kScaleBlock) scales.push_back(decode_block_scale(w.block_scale, n, c));
    }
  }
  return scales;
}

std::vector<float> bias_of(const std::vector<BiasView>& list, std::int64_t e) {
  std::vector<float> values;
  if (list.empty()) return values;
  const BiasView& bias = list[static_cast<std::size_t>(e)];
  for (std::int64_t n = 0; n < bias.count; ++n) values.push_back(decode_bias(bias, n));
  return values;
}

// Device room for one matrix in file format.
struct MatrixRoom {
  std::byte* codes = nullptr;
  float* scale = nullptr;
  float* bias = nullptr;
};

std::size_t aligned(std::size_t bytes) { return (bytes + kArrayAlign - 1) / kArrayAlign * kArrayAlign; }

// Uploads the matrices of one expert after the other and packs each expert.
class ExpertUpload {
 public:
  ExpertUpload(const HopperExperts& experts, ThreadPool* pool)
      : experts_(experts),
        pool_(pool),
        stream_(experts.device),
        staging_(stream_.get()),
        element_bytes_(experts.recipe == Recipe::bf16 ? 2 : 1) {
    const std::int64_t width = experts.layer.width(), inner = experts.layer.intermediate;
    const std::size_t bytes = 2 * room_bytes(inner, width) + room_bytes(width, inner);
    room_ = device_buffer(bytes, experts.device);
    std::byte* next = room_.as<std::byte>();
    gate_ = take(next, inner, width);
    up_ = take(next, inner, width);
    down_ = take(next, width, inner);
  }

  void expert(const ExpertWeights& w, std::int64_t e) {
    const auto i = static_cast<std::size_t>(e);
    sm90::PackArgs args;
    args.shape = experts_.shape;
    args.out = experts_.packed;
    args.expert = static_cast<std::int32_t>(e);
    const bool gated = !w.gate.empty();
    if (gated) args.gate = matrix(gate_, w.gate[i], w.gate[i].tensor_scale, bias_of(w.gate_bias, e));
    const float up_scale = experts_.upstream_gate_alpha && gated ? w.gate[i].tensor_scale : w.up[i].tensor_scale;
    args.up = matrix(up_, w.up[i], up_scale, bias_of(w.up_bias, e));
    args.down = matrix(down_, w.down[i], w.down[i].tensor_scale, bias_of(w.down_bias, e));
    check(sm90::launch_pack(args, stream_.get()), "packing weights");
  }

  void finish() const { stream_.synchronize(); }

 private:
  std::size_t room_bytes(std::int64_t rows, std::int64_t cols) const {
    const auto n = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(cols);
    const std::size_t scales = std::max(n, (n / kScaleBlock + 1) * (k / kScaleBlock + 1));
    return aligned(n * k * element_bytes_) + aligned(scales * sizeof(float)) + aligned(n * sizeof(float));
  }

  MatrixRoom take(std::byte*& next, std::int64_t rows, std::int64_t cols) const {
    const auto n = static_cast<std::size_t>(rows);
    MatrixRoom room;
    room.codes = next;
    room.bias = reinterpret_cast<float*>(next + aligned(n * static_cast<std::size_t>(cols) * element_bytes_));
    room.scale = room.bias + aligned(n * sizeof(float)) / sizeof(float);
    next += room_bytes(rows, cols);
    return room;
  }

  sm90::MatrixSource matrix(const MatrixRoom& room, const QuantTensor& w, float tensor_scale,
                            const std::vector<float>& bias) {
    const std::int64_t cols = w.codes.cols;
    const auto row_bytes = static_cast<std::size_t>(cols) * element_bytes_;
    staging_.upload(room.codes, w.codes.rows, row_bytes, [&](std::byte* to, std::int64_t first, std::int64_t n) {
      const auto part = [&](std::int64_t begin, std::int64_t end, int) {
        gather_weight_rows(w, first + begin, end - begin, to + static_cast<std::size_t>(begin) * row_bytes);
      };
      pool_ != nullptr ? pool_->parallel_for(n, kTransposeRows, part) : part(0, n, 0);
    });
    const std::vector<float> scales = scales_of(experts_.recipe, w, tensor_scale);
    floats(room.scale, scales);
    floats(room.bias, bias);
    return {room.codes, cols, scales.empty() ? nullptr : room.scale, bias.empty() ? nullptr : room.bias};
  }

  void floats(float* to, const std::vector<float>& values) {
    staging_.upload(to, static_cast<std::int64_t>(values.size()), sizeof(float),
                    [&](std::byte* block, std::int64_t first, std::int64_t n) {
                      std::memcpy(block, values.data() + first, static_cast<std::size_t>(n) * sizeof(float));
                    });
  }

  const HopperExperts& experts_;
  ThreadPool* pool_;
  OwnedStream stream_;
  StagingUpload staging_;
  std::size_t element_bytes_;
  Buffer room_;
  MatrixRoom gate_, up_, down_;
};

}  // namespace

sm90::Format sm90_format(Recipe recipe) {
  switch (recipe) {
    case Recipe::fp8_block:
      return sm90::Format::fp8_block;
    case Recipe::fp8_tensor:
      return sm90::Format::fp8_tensor;
    default:
      return sm90::Format::bf16;
  }
}

HopperExperts::HopperExperts(const Problem& problem, std::int64_t experts)
    : layer(problem.layer),
      recipe(problem.recipe),
      upstream_gate_alpha(problem.upstream_gate_alpha),
      row_invariant(problem.row_invariant),
      device(problem.device.index),
      processors(device_info(problem.device.index).processors),
      shape{sm90_format(problem.recipe), static_cast<std::int32_t>(problem.layer.width()),
            static_cast<std::int32_t>(problem.layer.intermediate), static_cast<std::int32_t>(experts)} {
  const sm90::PackedBytes bytes = sm90::packed_bytes(shape, layer.has_bias);
  std::size_t total = 0;
  for (const std::size_t n : {bytes.w1, bytes.w2, bytes.block_scale1, bytes.block_scale2, bytes.row_scale1,
                              bytes.row_scale2, bytes.bias1, bytes.bias2}) {
    total += aligned(n);
  }
  memory = device_buffer(total, device);
  std::byte* next = memory.as<std::byte>();
  const auto take = [&](auto*& array, std::size_t n) {
    array = n == 0 ? nullptr : reinterpret_cast<std::remove_reference_t<decltype(array)>>(next);
    next += aligned(n);
  };
  take(packed.w1, bytes.w1);
  take(packed.w2, bytes.w2);
  take(packed.block_scale1, bytes.block_scale1);
  take(packed.block_scale2, bytes.block_scale2);
  take(packed.row_scale1, bytes.row_scale1);
  take(packed.row_scale2, bytes.row_scale2);
  take(packed.bias1, bytes.bias1);
  take(packed.bias2, bytes.bias2);
}

void HopperExperts::fill(const ExpertWeights& weights, ThreadPool* pool) {
  check_weights(layer, weights);
  check_formats(recipe, weights);
  if (weights.count() != shape.experts) {
    fail(ErrorCode::usage,
         "a layer of " + std::to_string(shape.experts) + " experts was given " + std::to_string(weights.count()));
  }
  const DeviceScope scope(device);
  input_scales = layer_input_scales(recipe, weights.input_scales);
  ExpertUpload upload(*this, pool);
  for (std::int64_t e = 0; e < weights.count(); ++e) upload.expert(weights, e);
  upload.finish();
}

}  // namespace sluice::cuda
