// record_stages of run_hopper.h.
#include <algorithm>
#include <string>
#include <vector>

#include "core/rounding.h"
#include "cuda/device.h"
#include "cuda/run_hopper.h"
#include "cuda/status.h"
#include "moe/stages.h"
#include "numerics/bf16.h"
#include "numerics/fp8.h"

namespace sluice::cuda {
namespace {

template <class T>
std::vector<T> download(const void* data, std::int64_t count) {
  std::vector<T> out(data == nullptr ? 0 : static_cast<std::size_t>(count));
  check(cudaMemcpy(out.data(), data, out.size() * sizeof(T), cudaMemcpyDeviceToHost), "reading stages");
  return out;
}

// Routes that have a row, in the order of the rows, and these rows.
struct SortedRows {
  std::vector<std::int64_t> routes;
  std::vector<std::int64_t> rows;
};

SortedRows sorted_rows(const std::vector<std::int32_t>& route_row) {
  std::vector<std::pair<std::int32_t, std::int64_t>> pairs;
  for (std::size_t r = 0; r < route_row.size(); ++r) {
    if (route_row[r] >= 0) pairs.emplace_back(route_row[r], static_cast<std::int64_t>(r));
  }
  std::sort(pairs.begin(), pairs.end());
  SortedRows sorted;
  for (const auto& [row, route] : pairs) {
    sorted.rows.push_back(row);
    sorted.routes.push_back(route);
  }
  return sorted;
}

// A GEMM input as the image holds it (sm90/launch.h), or x by token, brought back into rows.
struct ImageRows {
  sm90::Format format = sm90::Format::bf16;
  std::int64_t cols = 0;
  bool permuted = false;  // fp8 intermediate: bytes of a K block are in another order
  std::vector<std::uint8_t> image;
  std::vector<float> scales;  // fp8_block: [K block][P]; fp8_tensor: [P]
  std::int64_t padded_rows = 0;
  float static_scale = 0.0f;   // of all rows, in place of `scales`
  std::int64_t row_bytes = 0;  // by token, else 0
  std::vector<std::int32_t> row_token;

  std::uint8_t byte(std::int64_t row, std::int64_t kb, std::int64_t at) const {
    if (row_bytes > 0) return image[static_cast<std::size_t>(row_token[row] * row_bytes + kb * sm90::kBlockBytes + at)];
    return image[static_cast<std::size_t>(sm90::image_offset(kb, row, at / 16, padded_rows) + at % 16)];
  }
  std::uint8_t code(std::int64_t row, std::int64_t kb, std::int64_t column) const {
    if (!permuted) return byte(row, kb, column);
    std::int32_t at = 0;
    while (sm90::fp8_intermediate_column(at) != column) ++at;
    return byte(row, kb, at);
  }
  float bf16(std::int64_t row, std::int64_t c) const {
    const std::int64_t at = c % 64 * 2;
    const auto low = byte(row, c / 64, at), high = byte(row, c / 64, at + 1);
    return to_float(Bf16{static_cast<std::uint16_t>(low | high << 8)});
  }
  std::int64_t groups() const { return format == sm90::Format::fp8_block ? ceil_div(cols, std::int64_t{128}) : 1; }
  float scale(std::int64_t row, std::int64_t group) const {
    if (static_scale != 0.0f) return static_scale;
    return scales[static_cast<std::size_t>(group * padded_rows + row)];
  }
};

void record(StageSink& sink, const std::string& name, const void* data, DType type, std::int64_t cols,
            const SortedRows& rows) {
  sink.record(name, dense_view(data, type, std::ssize(rows.rows), cols), rows.routes.data());
}

void record_image(StageSink& sink, std::string_view stage, const ImageRows& image, const SortedRows& rows) {
  const std::string name(stage);
  std::vector<float> values, scales;
  std::vector<std::uint8_t> codes;
  const bool fp8 = image.format != sm90::Format::bf16;
  for (const std::int64_t row : rows.rows) {
    for (std::int64_t c = 0; c < image.cols; ++c) {
      if (!fp8) {
        values.push_back(image.bf16(row, c));
        continue;
      }
      codes.push_back(image.code(row, c / 128, c % 128));
      values.push_back(to_float(E4m3{codes.back()}) * image.scale(row, image.groups() == 1 ? 0 : c / 128));
    }
    for (std::int64_t g = 0; fp8 && g < image.groups(); ++g) scales.push_back(image.scale(row, g));
  }
  record(sink, name, values.data(), DType::f32, image.cols, rows);
  if (!fp8) return;
  record(sink, name + std::string(stage::kCodes), codes.data(), DType::u8, image.cols, rows);
  record(sink, name + std::string(stage::kSumScales), scales.data(), DType::f32, image.groups(), rows);
}

}  // namespace

void record_stages(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run) {
  check(cudaStreamSynchronize(raw(run.stream)), "waiting for the layer");
  const sm90::Extents e = sm90::extents(s.shape);
  const std::int64_t padded = s.padded_rows(), width = experts.layer.width(), inner = experts.layer.intermediate;
  const SortedRows rows = sorted_rows(download<std::int32_t>(r.route_row, s.routes()));
  const auto image = [&](const std::uint8_t* data, const float* scales, std::int64_t blocks, std::int64_t cols,
                         float static_scale, bool permuted) {
    const std::int64_t groups = s.shape.format == sm90::Format::fp8_block ? blocks : 1;
    ImageRows rows_of;
    rows_of.format = s.shape.format;
    rows_of.cols = cols;
    rows_of.permuted = permuted;
    rows_of.image = download<std::uint8_t>(data, blocks * padded * sm90::kBlockBytes);
    rows_of.scales = download<float>(static_scale != 0.0f ? nullptr : scales, groups * padded);
    rows_of.padded_rows = padded;
    rows_of.static_scale = static_scale;
    return rows_of;
  };
  const bool fp8 = s.shape.format != sm90::Format::bf16;
  ImageRows input = image(r.x, r.x_scale, e.k_blocks1, width, 0.0f, false);
  if (s.rows != RowsAs::sorted) {
    const sm90::TokenRows x = expert_args(experts, s, r, run).x_rows;
    input.row_bytes = x.row_bytes;
    input.row_token = download<std::int32_t>(x.row_token, padded);
    input.image = download<std::uint8_t>(x.rows, (s.tokens - 1) * x.row_bytes + x.width_bytes);
  }
  record_image(*run.stages, stage::kGemm1Input, input, rows);
  record_image(*run.stages, stage::kIntermediate,
               image(r.h, r.h_scale, e.k_blocks2, inner, experts.input_scales.gemm2, fp8), rows);
  const std::vector<Bf16> slots = download<Bf16>(r.slot_rows, padded * width);
  std::vector<float> values;
  for (const std::int64_t row : rows.rows) {
    for (std::int64_t c = 0; c < width; ++c)
      values.push_back(to_float(slots[static_cast<std::size_t>(row * width + c)]));
  }
  record(*run.stages, std::string(stage::kSlotRows), values.data(), DType::f32, width, rows);
}

}  // namespace sluice::cuda
