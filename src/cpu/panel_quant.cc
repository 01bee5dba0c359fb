#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/panel.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

// Codes of a file into panels: a permutation of bytes or nibbles, and block scales in the form that decoding wants.
namespace sluice::cpu {
namespace {

constexpr std::int64_t kPanelLine = 64;             // bytes of a panel in a step of a record
constexpr std::int64_t kPairLine = 2 * kPanelLine;  // of both
constexpr std::int64_t kOctet = 8;                  // k of a 32-bit word of codes

// Rows of one panel that exist, and where the source has them.
struct Rows {
  const QuantTensor& w;
  std::int64_t first;
  std::int64_t count;
};

float block_scale(const BlockScaleView& s, std::int64_t n, std::int64_t k) {
  const std::int64_t i = n / s.block_rows * s.row_stride + k / s.block_cols * s.col_stride;
  switch (s.dtype) {
    case DType::f32:
      return static_cast<const float*>(s.data)[i];
    case DType::bf16:
      return to_float(static_cast<const Bf16*>(s.data)[i]);
    case DType::e8m0:
      return to_float(static_cast<const E8m0*>(s.data)[i]);
    default:
      fail(ErrorCode::unsupported, "block scales of type " + std::string(dtype_name(s.dtype)), "f32, bf16 or e8m0");
  }
}

void pack_fp8_codes(const Rows& rows, std::byte* records) {
  const MatrixView& c = rows.w.codes;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const auto* from = static_cast<const std::byte*>(c.data) + (rows.first + r) * c.row_stride;
    std::byte* to = records + r / 4 * 16 + r % 4 * 2;
    std::int64_t k = 0;
    for (; c.col_stride == 1 && k + 4 <= c.cols; k += 4, to += kPairLine) {
      std::memcpy(to, from + k, 2);
      std::memcpy(to + 8, from + k + 2, 2);
    }
    for (std::int64_t i = 0; k + i < c.cols; ++i)
      to[i / 4 * kPairLine + i % 4 / 2 * 8 + i % 2] = from[(k + i) * c.col_stride];
  }
}

// A scale of each panel and group of columns, the product of file scale and tensor scale.
void pack_block_scales(const PanelLayout& layout, const Rows& rows, float tensor_scale, int panel, float* to) {
  const BlockScaleView& s = rows.w.block_scale;
  if (s.block_rows % kPanelRows != 0 || s.block_cols != kScaledK) {
    fail(ErrorCode::unsupported, "fp8 blocks of " + std::to_string(s.block_rows) + " x " + std::to_string(s.block_cols),
         "a multiple of 16 rows and 128 columns");
  }
  for (std::int64_t g = 0; g < layout.scale_groups(); ++g) {
    to[2 * g + panel] = rows.count > 0 ? block_scale(s, rows.first, g * kScaledK) * tensor_scale : 0.0f;
  }
}

// Nibbles 0, 2, 4, 6 into the low half and 1, 3, 5, 7 into the high half.
std::uint32_t split_even_odd(std::uint32_t v) {
  const auto squeeze = [](std::uint32_t n) {
    n &= 0x0F0F0F0Fu;
    n = (n | n >> 4) & 0x00FF00FFu;
    return (n | n >> 8) & 0xFFFFu;
  };
  return squeeze(v) | squeeze(v >> 4) << 16;
}

// What a block scale becomes: its byte in the panel, and a mask that is applied to the codes.
struct StoredScale {
  std::uint8_t byte = 0;
  std::uint32_t keep = 0xFFFFFFFFu;  // 0: the scale is zero or NaN, so the codes are dropped
  std::uint32_t flip = 0;            // sign bits of a negative scale
  bool nan = false;
};

StoredScale stored_nvfp4(std::uint8_t code) {
  StoredScale s;
  const std::uint32_t magnitude = code & 0x7Fu;
  s.flip = (code & 0x80u) != 0 ? 0x88888888u : 0u;
  s.nan = magnitude == 0x7Fu;
  if (s.nan || magnitude == 0) {
    s.keep = 0;
    return s;
  }
  int exponent = 0;
  const float fraction = std::frexp(to_float(E4m3{static_cast<std::uint8_t>(magnitude)}), &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<std::uint32_t>(fraction * 16.0f) - 8;
  s.byte = static_cast<std::uint8_t>((8 - (exponent - 1)) * 8 + static_cast<int>(mantissa));
  return s;
}

StoredScale stored_mxfp4(std::uint8_t code) {
  StoredScale s;
  s.nan = code == kE8m0Nan;
  s.keep = s.nan ? 0 : s.keep;
  if (!s.nan && code >= 253) {
    fail(ErrorCode::unsupported, "an MXFP4 block scale of 2^" + std::to_string(code - 127), "at most 2^125",
         "larger values are beyond bf16");
  }
  s.byte = s.nan ? std::uint8_t{0} : static_cast<std::uint8_t>(254 - code);
  return s;
}

using ScaleTable = std::array<StoredScale, 256>;

ScaleTable nvfp4_table() {
  ScaleTable t;
  for (int i = 0; i < 256; ++i) t[i] = stored_nvfp4(static_cast<std::uint8_t>(i));
  return t;
}

StoredScale stored_scale(Format format, std::uint8_t code) {
  static const ScaleTable kNvfp4 = nvfp4_table();
  return format == Format::nvfp4 ? kNvfp4[code] : stored_mxfp4(code);
}

// Up to 8 codes from column k on, unit column stride, k even.
std::uint32_t load_octet(const MatrixView& c, std::int64_t n, std::int64_t k) {
  const auto* from = static_cast<const std::byte*>(c.data) + (n * c.row_stride + k) / 2;
  const std::int64_t count = std::min(kOctet, c.cols - k);
  std::uint32_t word = 0;
  std::memcpy(&word, from, static_cast<std::size_t>((count + 1) / 2));
  return count < kOctet ? word & ((1u << 4 * count) - 1u) : word;
}

bool zero_codes(const MatrixView& c, std::int64_t n, std::int64_t first, std::int64_t last) {
  for (std::int64_t k = first; k < last; k += kOctet) {
    if ((load_octet(c, n, k) & 0x77777777u) != 0) return false;
  }
  return true;
}

struct Fp4Layout {
  std::int64_t group;         // k of a scale
  std::int64_t scale_bytes;   // of a record, before its codes
  std::int64_t record_bytes;  // 64 k of a pair
};

Fp4Layout fp4_layout(const PanelLayout& layout) {
  const std::int64_t group = layout.format == Format::nvfp4 ? 16 : 32;
  return {group, kStoredK / group * kPairRows, layout.bytes_of_k(kStoredK)};
}

// Row r of a panel. Returns whether a block scale is NaN. Zero has any scale: blocks of zeros, and those that fill up
// the last record, have that of the block before them, which keeps sums in the same unit.
bool pack_fp4_row(const PanelLayout& layout, const Rows& rows, std::int64_t r, int panel, std::byte* records) {
  const Fp4Layout f = fp4_layout(layout);
  const BlockScaleView& s = rows.w.block_scale;
  const std::int64_t n = rows.first + r;
  const auto* scales = static_cast<const std::uint8_t*>(s.data) + n / s.block_rows * s.row_stride;
  bool nan = false;
  std::uint8_t byte = layout.format == Format::mxfp4 ? 127 : 0;
  for (std::int64_t k = 0; k < ceil_div(layout.cols, kStoredK) * kStoredK; k += f.group) {
    const std::int64_t end = std::min(k + f.group, layout.cols), in_record = k % kStoredK;
    StoredScale scale;
    if (k < end) scale = stored_scale(layout.format, scales[k / f.group * s.col_stride]);
    nan = nan || scale.nan;
    if (k < end && scale.keep != 0 && !zero_codes(rows.w.codes, n, k, end)) byte = scale.byte;
    std::byte* record = records + k / kStoredK * f.record_bytes;
    record[in_record / f.group * kPairRows + panel * kPanelRows + r] = static_cast<std::byte>(byte);
    std::byte* to = record + f.scale_bytes + in_record / kOctet * kPairLine + panel * kPanelLine + 4 * r;
    for (std::int64_t o = k; o < end; o += kOctet, to += kPairLine) {
      const std::uint32_t word = split_even_odd((load_octet(rows.w.codes, n, o) ^ scale.flip) & scale.keep);
      std::memcpy(to, &word, sizeof(word));
    }
  }
  return nan;
}

void check_fp4(const PanelLayout& layout, const QuantTensor& w) {
  const std::int64_t group = fp4_layout(layout).group;
  const bool ok = w.codes.dtype == DType::e2m1 && w.codes.col_stride == 1 && w.codes.row_stride % 2 == 0 &&
                  w.block_scale.data != nullptr && w.block_scale.block_cols == group;
  if (!ok) {
    fail(ErrorCode::unsupported, "4-bit weights with strides or scale blocks that panels cannot hold",
         "packed e2m1 rows with a scale per " + std::to_string(group) + " columns");
  }
}

void zero_panel(const PanelLayout& layout, int panel, std::byte* records) {
  const std::int64_t scale_bytes = layout.format == Format::fp8 ? 0 : fp4_layout(layout).scale_bytes;
  const std::int64_t record = layout.bytes_of_k(kStoredK);
  for (std::byte* r = records; r < records + layout.pair_bytes(); r += record) {
    for (std::int64_t i = panel * kPanelRows; i < scale_bytes; i += kPairRows) std::memset(r + i, 0, kPanelRows);
    for (std::int64_t i = scale_bytes + panel * kPanelLine; i < record; i += kPairLine)
      std::memset(r + i, 0, kPanelLine);
  }
}

void pack_output_scales(const Rows& rows, float tensor_scale, float* to) {
  const BlockScaleView& s = rows.w.block_scale;
  const bool of_rows = rows.w.codes.dtype == DType::e4m3 && s.data != nullptr;
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    to[r] = of_rows && r < rows.count ? block_scale(s, rows.first + r, 0) * tensor_scale : tensor_scale;
  }
}

}  // namespace

bool scales_are_near(const QuantTensor& weight) {
  constexpr int kLowest = 127 - 40, kHighest = 127 + 40;
  const BlockScaleView& s = weight.block_scale;
  if (s.data == nullptr || s.dtype != DType::e8m0 || weight.codes.dtype != DType::e2m1) return false;
  for (std::int64_t n = 0; n < weight.codes.rows; ++n) {
    const auto* scales = static_cast<const std::uint8_t*>(s.data) + n / s.block_rows * s.row_stride;
    for (std::int64_t k = 0; k < weight.codes.cols; k += s.block_cols) {
      const std::uint8_t code = scales[k / s.block_cols * s.col_stride];
      if ((code >= kLowest && code <= kHighest) || code == kE8m0Nan) continue;
      if (!zero_codes(weight.codes, n, k, std::min(k + s.block_cols, weight.codes.cols))) return false;
    }
  }
  return true;
}

void pack_quantized_panel(const PanelLayout& layout, const PanelSource& source, int panel, const PairData& pair) {
  const QuantTensor& w = *source.weight;
  const Rows rows{w, source.first_row, std::clamp<std::int64_t>(w.codes.rows - source.first_row, 0, kPanelRows)};
  zero_panel(layout, panel, pair.records);
  float* outputs = pair.output_scales != nullptr ? pair.output_scales + panel * kPanelRows : nullptr;
  if (outputs != nullptr) pack_output_scales(rows, source.tensor_scale, outputs);
  if (layout.format == Format::fp8) {
    if (w.codes.dtype != DType::e4m3) {
      fail(ErrorCode::unsupported, std::string(dtype_name(w.codes.dtype)) + " weights in an fp8 recipe", "e4m3");
    }
    if (layout.scaled) pack_block_scales(layout, rows, source.tensor_scale, panel, pair.block_scales);
    return pack_fp8_codes(rows, pair.records + panel * kPanelLine);
  }
  check_fp4(layout, w);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    if (!pack_fp4_row(layout, rows, r, panel, pair.records)) continue;
    outputs[r] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace sluice::cpu
