#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/panel.h"
#include "cpu/panel_codes.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

// Codes of a file into panels: a permutation of bytes or nibbles, and block scales in the form that decoding wants.
namespace sluice::cpu {
namespace {

constexpr std::int64_t kPanelLine = 64;             // bytes of a panel in a step of a record
constexpr std::int64_t kPairLine = 2 * kPanelLine;  // of both
constexpr std::int64_t kBlockBytes = 64;            // of a row of kStoredK e4m3 codes; e2m1 has half of it
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

constexpr std::uint8_t kMxfp4One = 127;  // stored byte of the scale 1

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

// Codes from 253 on have no stored byte: they are refused where they occur.
StoredScale stored_mxfp4(std::uint8_t code) {
  StoredScale s;
  s.nan = code == kE8m0Nan;
  s.keep = s.nan ? 0 : s.keep;
  s.byte = s.nan ? kMxfp4One : static_cast<std::uint8_t>(254 - code);
  return s;
}

bool changes_codes(const StoredScale& s) { return s.keep == 0 || s.flip != 0; }

using ScaleTable = std::array<StoredScale, 256>;

ScaleTable make_scale_table(StoredScale (*stored)(std::uint8_t)) {
  ScaleTable t;
  for (int i = 0; i < 256; ++i) t[i] = stored(static_cast<std::uint8_t>(i));
  return t;
}

const ScaleTable& scale_table(Format format) {
  static const ScaleTable kNvfp4 = make_scale_table(stored_nvfp4), kMxfp4 = make_scale_table(stored_mxfp4);
  return format == Format::nvfp4 ? kNvfp4 : kMxfp4;
}

void check_mxfp4_scale(std::uint8_t code) {
  if (code < 253 || code == kE8m0Nan) return;
  fail(ErrorCode::unsupported, "an MXFP4 block scale of 2^" + std::to_string(code - 127), "at most 2^125",
       "larger values are beyond bf16");
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

// 32 codes, all of them there.
bool zero_codes(const std::byte* codes) {
  const __m128i magnitudes =
      _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)), _mm_set1_epi8(0x77));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(magnitudes, _mm_setzero_si128())) == 0xFFFF;
}

struct Fp4Layout {
  std::int64_t group;        // k of a scale
  std::int64_t scale_bytes;  // of a record of one lane, before its codes
  std::uint8_t first_byte;   // scale of what is before the first block that is not zero
};

Fp4Layout fp4_layout(const PanelLayout& layout) {
  const bool nvfp4 = layout.format == Format::nvfp4;
  const std::int64_t group = nvfp4 ? 16 : 32;
  return {group, kStoredK / group * kPairRows, nvfp4 ? std::uint8_t{0} : kMxfp4One};
}

// kStoredK columns of 16 rows: where they are, or copies of those that are not whole or are changed.
struct Block {
  CodeRows rows;
  alignas(16) std::byte copies[kPanelRows][kBlockBytes];
};

// Targets of one record of a panel after the other.
class Targets {
 public:
  Targets(const PanelLayout& layout, int panel, std::byte* records)
      : layout_(layout),
        scale_bytes_(layout.format == Format::fp8 ? 0 : fp4_layout(layout).scale_bytes),
        record_bytes_(layout.bytes_of_k(kStoredK)),
        panel_(panel),
        records_(records) {}

  // Of the record at k, which goes up by kStoredK from 0.
  RecordTarget at(std::int64_t k) {
    if (k == next_segment_) {
      place_ = layout_.place(k);
      record_ = records_ + place_.bytes;
      next_segment_ += layout_.segment_k();
    }
    const RecordTarget to = {record_ + place_.lane * scale_bytes_ + panel_ * kPanelRows,
                             record_ + place_.lanes * scale_bytes_ + place_.lane * kPairLine + panel_ * kPanelLine,
                             place_.lanes * kPairLine};
    record_ += place_.lanes * record_bytes_;
    return to;
  }

 private:
  const PanelLayout& layout_;
  std::int64_t scale_bytes_, record_bytes_;
  int panel_;
  std::byte* records_;
  StoredPlace place_;
  std::byte* record_ = nullptr;
  std::int64_t next_segment_ = 0;
};

// Rows that all exist, with unit column stride: nothing has to be copied.
bool whole_rows(const Rows& rows) { return rows.count == kPanelRows && rows.w.codes.col_stride == 1; }

CodeRows rows_at(const Rows& rows, std::int64_t k) {
  const MatrixView& c = rows.w.codes;
  const std::int64_t row_bytes = dtype_bytes(c.dtype, c.row_stride);
  const std::byte* first = static_cast<const std::byte*>(c.data) + rows.first * row_bytes + dtype_bytes(c.dtype, k);
  CodeRows at;
  for (std::int64_t r = 0; r < kPanelRows; ++r) at[r] = first + r * row_bytes;
  return at;
}

// Sixteen rows are more streams than hardware follows, so those of the next panel are asked for at the same columns.
void fetch_next_panel(const CodeRows& rows, const MatrixView& codes) {
  const std::int64_t ahead = dtype_bytes(codes.dtype, kPanelRows * codes.row_stride);
  for (const std::byte* row : rows) __builtin_prefetch(row + ahead, 0, 2);
}

// Zeros for rows and columns that don't exist.
void load_fp8(const Rows& rows, std::int64_t k, Block& block) {
  const MatrixView& c = rows.w.codes;
  const std::int64_t count = std::min<std::int64_t>(kStoredK, c.cols - k);
  std::memset(block.copies, 0, sizeof(block.copies));
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    const auto* from = static_cast<const std::byte*>(c.data) + (rows.first + r) * c.row_stride + k * c.col_stride;
    block.rows[r] = block.copies[r];
    for (std::int64_t i = 0; i < count && r < rows.count; ++i) block.copies[r][i] = from[i * c.col_stride];
  }
}

void pack_fp8(const PanelLayout& layout, const Rows& rows, Targets targets) {
  for (std::int64_t k = 0; k < layout.cols; k += kStoredK) {
    if (whole_rows(rows) && k + kStoredK <= layout.cols) {
      const CodeRows codes = rows_at(rows, k);
      fetch_next_panel(codes, rows.w.codes);
      store_fp8_codes(codes, targets.at(k));
      continue;
    }
    Block block;
    load_fp8(rows, k, block);
    store_fp8_codes(block.rows, targets.at(k));
  }
}

// What goes on from record to record of the rows of a panel.
struct RowState {
  ScaleRows scales{};
  std::array<std::uint8_t, kPanelRows> byte;  // last stored scale
  std::array<bool, kPanelRows> nan{};         // whether a scale is NaN
};

// A row of a record as the file has it. Blocks of zeros, and those that fill up the last record, have the scale of the
// block before them, which keeps sums of mxfp4 in the same unit.
struct Fp4Row {
  const PanelLayout& layout;
  const Rows& rows;
  const ScaleTable& table;
  Fp4Layout f;
  std::int64_t k, first_group;
  std::int64_t r = 0;
  const std::uint8_t* scales = nullptr;  // of the row

  std::int64_t n() const { return rows.first + r; }
  std::int64_t count() const { return r < rows.count ? std::min<std::int64_t>(kStoredK, layout.cols - k) : 0; }
  const std::byte* codes() const {
    const MatrixView& c = rows.w.codes;
    return static_cast<const std::byte*>(c.data) + (n() * c.row_stride + k) / 2;
  }
  const StoredScale& scale(std::int64_t g) const {
    const std::uint8_t code = scales[(first_group + g) * rows.w.block_scale.col_stride];
    if (layout.format == Format::mxfp4) check_mxfp4_scale(code);
    return table[code];
  }
  bool zeros(std::int64_t g) const {
    if (layout.format == Format::nvfp4) return false;
    if (count() == kStoredK) return zero_codes(codes() + g * f.group / 2);
    const std::int64_t first = k + g * f.group;
    return zero_codes(rows.w.codes, n(), first, std::min(first + f.group, layout.cols));
  }
  // With what the scales do to codes, and zeros behind them.
  void copy(std::byte* to) const {
    std::memset(to, 0, kBlockBytes);
    for (std::int64_t i = 0; i < count(); i += kOctet) {
      const StoredScale& s = scale(i / f.group);
      const std::uint32_t word = (load_octet(rows.w.codes, n(), k + i) ^ s.flip) & s.keep;
      std::memcpy(to + i / 2, &word, sizeof(word));
    }
  }
};

void pack_fp4_record(Fp4Row row, RowState& state, const RecordTarget& to) {
  Block block;
  for (row.r = 0; row.r < kPanelRows; ++row.r) {
    const std::int64_t r = row.r, count = row.count();
    row.scales = state.scales[r];
    bool copy = count < kStoredK;
    for (std::int64_t g = 0; g * row.f.group < kStoredK; ++g) {
      if (g * row.f.group < count) {
        const StoredScale& s = row.scale(g);
        copy = copy || changes_codes(s);
        state.nan[r] = state.nan[r] || s.nan;
        if (s.keep != 0 && !row.zeros(g)) state.byte[r] = s.byte;
      }
      to.scales[g * kPairRows + r] = static_cast<std::byte>(state.byte[r]);
    }
    if (copy) row.copy(block.copies[r]);
    block.rows[r] = copy ? block.copies[r] : row.codes();
  }
  row.layout.format == Format::nvfp4 ? store_nvfp4_codes(block.rows, to)
                                     : static_cast<void>(store_mxfp4_codes(block.rows, to));
}

// A record of rows that all exist. Returns false where a scale or a block of zeros needs pack_fp4_record, which may
// then write all of it again.
bool pack_plain_fp4_record(const Fp4Row& row, RowState& state, const RecordTarget& to) {
  constexpr std::int64_t kLine = 64;
  const CodeRows codes = rows_at(row.rows, row.k);
  if (row.k * 2 % kStoredK == 0) fetch_next_panel(codes, row.rows.w.codes);
  ScaleRows scales;
  for (std::int64_t r = 0; r < kPanelRows; ++r) scales[r] = state.scales[r] + row.first_group;
  if (row.first_group % kLine == 0) {
    for (const std::uint8_t* s : scales) __builtin_prefetch(s + kPanelRows * row.rows.w.block_scale.row_stride, 0, 2);
  }
  if (row.layout.format == Format::nvfp4) {
    if (!store_plain_nvfp4_scales(scales, to)) return false;
    store_nvfp4_codes(codes, to);
  } else if (!store_plain_mxfp4_scales(scales, to) || store_mxfp4_codes(codes, to)) {
    return false;
  }
  std::memcpy(state.byte.data(), to.scales + (kStoredK / row.f.group - 1) * kPairRows, kPanelRows);
  return true;
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

void pack_output_scales(const Rows& rows, float tensor_scale, float* to) {
  const BlockScaleView& s = rows.w.block_scale;
  const bool of_rows = rows.w.codes.dtype == DType::e4m3 && s.data != nullptr;
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    to[r] = of_rows && r < rows.count ? block_scale(s, rows.first + r, 0) * tensor_scale : tensor_scale;
  }
}

}  // namespace

bool scales_are_near(const QuantTensor& weight) {
  constexpr std::uint8_t kLowest = 127 - 40, kHighest = 127 + 40;
  const BlockScaleView& s = weight.block_scale;
  if (s.data == nullptr || s.dtype != DType::e8m0 || weight.codes.dtype != DType::e2m1) return false;
  const std::int64_t groups = ceil_div(weight.codes.cols, s.block_cols);
  const auto far = [](std::uint8_t code) { return static_cast<std::uint8_t>(code - kLowest) > kHighest - kLowest; };
  for (std::int64_t n = 0; n < weight.codes.rows; ++n) {
    const auto* scales = static_cast<const std::uint8_t*>(s.data) + n / s.block_rows * s.row_stride;
    unsigned some = s.col_stride == 1 ? 0 : 1;  // vector instructions go over one after the other only
    for (std::int64_t g = 0; some == 0 && g < groups; g += kStoredK) {
      const std::int64_t end = std::min<std::int64_t>(g + kStoredK, groups);
      for (std::int64_t i = g; i < end; ++i) some |= static_cast<unsigned>(far(scales[i]));
    }
    for (std::int64_t g = 0; some != 0 && g < groups; ++g) {
      const std::uint8_t code = scales[g * s.col_stride];
      const std::int64_t k = g * s.block_cols;
      if (!far(code) || code == kE8m0Nan) continue;
      if (!zero_codes(weight.codes, n, k, std::min(k + s.block_cols, weight.codes.cols))) return false;
    }
  }
  return true;
}

void pack_quantized_panel(const PanelLayout& layout, const PanelSource& source, int panel, const PairData& pair) {
  const QuantTensor& w = *source.weight;
  const Rows rows{w, source.first_row, std::clamp<std::int64_t>(w.codes.rows - source.first_row, 0, kPanelRows)};
  float* outputs = pair.output_scales != nullptr ? pair.output_scales + panel * kPanelRows : nullptr;
  if (outputs != nullptr) pack_output_scales(rows, source.tensor_scale, outputs);
  if (layout.format == Format::fp8) {
    if (w.codes.dtype != DType::e4m3) {
      fail(ErrorCode::unsupported, std::string(dtype_name(w.codes.dtype)) + " weights in an fp8 recipe", "e4m3");
    }
    if (layout.scaled) pack_block_scales(layout, rows, source.tensor_scale, panel, pair.block_scales);
    return pack_fp8(layout, rows, {layout, panel, pair.records});
  }
  check_fp4(layout, w);
  const Fp4Layout f = fp4_layout(layout);
  const BlockScaleView& scales = w.block_scale;
  RowState state;
  state.byte.fill(f.first_byte);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = (rows.first + r) / scales.block_rows;
    state.scales[r] = static_cast<const std::uint8_t*>(scales.data) + row * scales.row_stride;
  }
  Targets targets(layout, panel, pair.records);
  const bool whole = whole_rows(rows) && scales.col_stride == 1;
  for (std::int64_t k = 0; k < layout.cols; k += kStoredK) {
    const RecordTarget to = targets.at(k);
    const Fp4Row row{layout, rows, scale_table(layout.format), f, k, k / f.group};
    const bool plain = whole && k + kStoredK <= layout.cols && pack_plain_fp4_record(row, state, to);
    if (!plain) pack_fp4_record(row, state, to);
  }
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    if (state.nan[r]) outputs[r] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace sluice::cpu
