#include "cpu/panel.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "numerics/bf16.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kLineBytes = 64;

bool is_plain_bf16(const QuantTensor& w) {
  return w.codes.dtype == DType::bf16 && w.codes.col_stride == 1 && w.block_scale.data == nullptr &&
         w.tensor_scale == 1.0f;
}

// [k pair][16 rows][2 k] bf16 from 16 rows of bf16, `stride` bytes apart, after which those of the next panel come.
void interleave_bf16(const PanelLayout& layout, const LineKernels& kernels, const std::byte* rows, std::int64_t stride,
                     std::byte* line) {
  constexpr std::int64_t kPairsOfRecord = kLineBytes / 4;
  const std::int64_t records = layout.cols / 2 / kPairsOfRecord;
  const FetchAhead ahead = {rows + kPanelRows * stride, stride, kLineBytes};
  kernels.bf16({rows, stride, records, line, 2 * kLineBytes, kPairsOfRecord * 2 * kLineBytes, ahead});
  line += records * kPairsOfRecord * 2 * kLineBytes;
  for (std::int64_t kp = records * kPairsOfRecord; kp < layout.cols / 2; ++kp, line += 2 * kLineBytes) {
    for (int r = 0; r < kPanelRows; ++r) std::memcpy(line + 4 * r, rows + r * stride + 4 * kp, 4);
  }
  if (layout.cols % 2 == 0) return;
  for (int r = 0; r < kPanelRows; ++r) {
    std::memcpy(line + 4 * r, rows + r * stride + 2 * (layout.cols - 1), 2);
    std::memset(line + 4 * r + 2, 0, 2);
  }
}

// Element (k, row) of a panel, counted from the panel's first line.
std::byte* element_at(const PanelLayout& layout, std::byte* panel, std::int64_t k, int r) {
  if (layout.format == Format::f32) return panel + k * 2 * kLineBytes + 4 * r;
  return panel + k / 2 * 2 * kLineBytes + 4 * r + 2 * (k % 2);
}

void interleave_floats(const PanelLayout& layout, const float* rows, std::byte* panel) {
  for (std::int64_t k = 0; k < 2 * layout.k_pairs(); ++k) {
    for (int r = 0; r < kPanelRows; ++r) {
      const float v = k < layout.cols ? rows[r * layout.cols + k] : 0.0f;
      std::byte* to = element_at(layout, panel, k, r);
      if (layout.format == Format::f32) {
        std::memcpy(to, &v, sizeof(v));
      } else {
        const Bf16 rounded = to_bf16(v);
        std::memcpy(to, &rounded, sizeof(rounded));
      }
    }
  }
}

void pack_panel(const PanelLayout& layout, const PanelSource& source, const PackTools& tools, std::byte* lines) {
  const QuantTensor& w = *source.weight;
  const std::int64_t rows = std::clamp<std::int64_t>(w.codes.rows - source.first_row, 0, kPanelRows);
  if (layout.format == Format::bf16 && rows == kPanelRows && is_plain_bf16(w)) {
    const std::int64_t stride = 2 * w.codes.row_stride;
    return interleave_bf16(layout, tools.lines, static_cast<const std::byte*>(w.codes.data) + source.first_row * stride,
                           stride, lines);
  }
  float* const scratch = tools.scratch;
  std::fill_n(scratch, pack_scratch_floats(layout.cols), 0.0f);
  for (int r = 0; r < rows; ++r) decode_row(w, source.first_row + r, scratch + r * layout.cols);
  interleave_floats(layout, scratch, lines);
}

}  // namespace

Format stored_format(Recipe recipe) {
  switch (recipe) {
    case Recipe::f32:
      return Format::f32;
    case Recipe::bf16:
      return Format::bf16;
    case Recipe::fp8_tensor:
    case Recipe::fp8_block:
      return Format::fp8;
    case Recipe::nvfp4_w4a16:
    case Recipe::nvfp4_w4a4_cutedsl:
    case Recipe::nvfp4_w4a4_cutlass:
      return Format::nvfp4;
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return Format::mxfp4;
  }
  fail(ErrorCode::unsupported, "the CPU kernels don't have this recipe");
}

std::int64_t PanelLayout::bytes_of_k(std::int64_t k) const {
  switch (format) {
    case Format::f32:
      return k * kPairRows * 4;
    case Format::bf16:
      return k * kPairRows * 2;
    case Format::fp8:
      return k * kPairRows;
    case Format::nvfp4:
      return k * kPairRows * 9 / 16;
    case Format::mxfp4:
      return k * kPairRows * 17 / 32;
  }
  return 0;
}

StoredPlace PanelLayout::place(std::int64_t k) const {
  // Sizes that the compiler knows: this is asked for every segment while packing.
  const auto of_segments = [&](std::int64_t count) { return scaled ? count / kScaledK : count / kSegmentK; };
  const std::int64_t whole = quantized() ? of_segments(cols) : 0, segment = of_segments(k);
  if (segment >= whole || whole == 1) return {bytes_of_k(k), 1, 0};
  const std::int64_t three = whole % 2 == 0 ? whole : whole - 3;  // the first segment of the last three
  const std::int64_t first = segment < three ? segment / 2 * 2 : three;
  return {bytes_of_k(first * segment_k()), segment < three ? 2 : 3, static_cast<int>(segment - first)};
}

void pack_pair(const PanelLayout& layout, const PanelSource (&sources)[2], const PackTools& tools,
               const PairData& pair) {
  if (layout.quantized()) return pack_quantized_pair(layout, sources, tools.lines, pair);
  for (int p = 0; p < 2; ++p) pack_panel(layout, sources[p], tools, pair.records + p * kLineBytes);
}

}  // namespace sluice::cpu
