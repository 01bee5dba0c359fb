#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/panel.h"
#include "cpu/stored_scale.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"

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

using CodeRows = std::array<const std::byte*, kPanelRows>;  // kStoredK codes of each row

// kStoredK columns of 16 rows: where they are, or copies of those that are not whole or are changed.
struct Block {
  CodeRows rows;
  alignas(16) std::byte copies[kPanelRows][kBlockBytes];
};

// Where the records of one segment put those of a panel.
struct SegmentTarget {
  std::byte* scales = nullptr;  // of the panel in the first record
  std::byte* codes = nullptr;
  std::int64_t pitch = 0;  // bytes from a line of the panel to its next
  std::int64_t step = 0;   // bytes from record to record

  SegmentTarget record(std::int64_t i) const { return {scales + i * step, codes + i * step, pitch, step}; }
};

// Of the segment that begins at k.
SegmentTarget target_of(const PanelLayout& layout, std::int64_t k, int panel, std::byte* records) {
  const std::int64_t scale_bytes = layout.format == Format::fp8 ? 0 : fp4_layout(layout).scale_bytes;
  const StoredPlace place = layout.place(k);
  std::byte* first = records + place.bytes;
  return {first + place.lane * scale_bytes + panel * kPanelRows,
          first + place.lanes * scale_bytes + place.lane * kPairLine + panel * kPanelLine, place.lanes * kPairLine,
          place.lanes * layout.bytes_of_k(kStoredK)};
}

// The columns of one segment.
struct Segment {
  std::int64_t k = 0;        // first one
  std::int64_t records = 0;  // the last one may be cut off by the end of the rows
  std::int64_t whole = 0;    // records that are not

  Segment(const PanelLayout& layout, std::int64_t first) : k(first) {
    const std::int64_t cols = std::min(layout.segment_k(), layout.cols - first);
    records = ceil_div(cols, kStoredK);
    whole = cols / kStoredK;
  }
};

// Rows that all exist, with unit column stride: nothing has to be copied.
bool whole_rows(const Rows& rows) { return rows.count == kPanelRows && rows.w.codes.col_stride == 1; }

// The rows of codes of a panel.
struct PanelCodes {
  CodeRows rows;
  std::int64_t ahead = 0;  // bytes from a row to that of the next panel
  DType dtype;

  explicit PanelCodes(const Rows& from) : dtype(from.w.codes.dtype) {
    const MatrixView& c = from.w.codes;
    const std::int64_t row_bytes = dtype_bytes(dtype, c.row_stride);
    const std::byte* first = static_cast<const std::byte*>(c.data) + from.first * row_bytes;
    for (std::int64_t r = 0; r < kPanelRows; ++r) rows[r] = first + r * row_bytes;
    ahead = kPanelRows * row_bytes;
  }
  // Whole records from column k on, of rows that are all there.
  LineRun run(std::int64_t k, std::int64_t records, const SegmentTarget& to) const {
    return {rows.data(), dtype == DType::e2m1 ? k / 2 : k, records, to.codes, to.pitch, to.step, ahead};
  }
};

// One record of rows that are copies.
LineRun line_run(const Block& block, const SegmentTarget& to) {
  return {block.rows.data(), 0, 1, to.codes, to.pitch, to.step, 0};
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

void pack_fp8(const PanelLayout& layout, const Rows& rows, int panel, const LineKernels& lines, std::byte* records) {
  const PanelCodes codes(rows);
  const bool all_there = whole_rows(rows);
  for (std::int64_t k = 0; k < layout.cols; k += layout.segment_k()) {
    const Segment segment(layout, k);
    const SegmentTarget to = target_of(layout, k, panel, records);
    const std::int64_t whole = all_there ? segment.whole : 0;
    if (whole > 0) lines.fp8(codes.run(k, whole, to));
    for (std::int64_t i = whole; i < segment.records; ++i) {
      Block block;
      load_fp8(rows, k + i * kStoredK, block);
      lines.fp8(line_run(block, to.record(i)));
    }
  }
}

// What goes on from record to record of the rows of a panel.
struct RowState {
  std::array<const std::uint8_t*, kPanelRows> scales{};
  std::array<std::uint8_t, kPanelRows> byte;  // last stored scale
  std::array<bool, kPanelRows> nan{};         // whether a scale is NaN
  bool far = false;                           // whether a scale may be far (PairData)
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

void store_fp4(const LineKernels& lines, Format format, const LineRun& run) {
  format == Format::nvfp4 ? lines.nvfp4(run) : static_cast<void>(lines.mxfp4(run));
}

void pack_fp4_record(Fp4Row row, RowState& state, const LineKernels& lines, const SegmentTarget& to) {
  Block block;
  for (row.r = 0; row.r < kPanelRows; ++row.r) {
    const std::int64_t r = row.r, count = row.count();
    row.scales = state.scales[r];
    bool copy = count < kStoredK;
    for (std::int64_t g = 0; g * row.f.group < kStoredK; ++g) {
      if (g * row.f.group < count) {
        const StoredScale& s = row.scale(g);
        copy = copy || s.changes_codes();
        state.nan[r] = state.nan[r] || s.nan;
        if (s.keep != 0 && !row.zeros(g)) state.byte[r] = s.byte;
      }
      to.scales[g * kPairRows + r] = static_cast<std::byte>(state.byte[r]);
    }
    if (copy) row.copy(block.copies[r]);
    block.rows[r] = copy ? block.copies[r] : row.codes();
  }
  store_fp4(lines, row.layout.format, line_run(block, to));
}

// Rows that all exist, with their scales one after the other.
struct PlainFp4 {
  const PanelLayout& layout;
  const LineKernels& lines;
  const PanelCodes& codes;
  std::int64_t group;
  std::int64_t scales_ahead;  // bytes from the scales of a row to those of the next panel

  // The whole records of a segment. Returns false where a scale or a block of zeros needs pack_fp4_record, which then
  // writes all of them again.
  bool pack(const Segment& segment, RowState& state, const SegmentTarget& to) const {
    constexpr std::int64_t kCacheLine = 64;
    const std::int64_t first_group = segment.k / group;
    if (first_group % kCacheLine == 0) {
      for (const std::uint8_t* s : state.scales) __builtin_prefetch(s + first_group + scales_ahead, 0, 2);
    }
    const ScaleRun scales{state.scales.data(), first_group, segment.whole, to.scales, to.step};
    const LineRun run = codes.run(segment.k, segment.whole, to);
    if (layout.format == Format::nvfp4) {
      if (!lines.nvfp4_scales(scales)) return false;
      lines.nvfp4(run);
    } else if (!lines.mxfp4_scales(scales, state.far) || lines.mxfp4(run)) {
      return false;
    }
    const std::byte* last = to.record(segment.whole - 1).scales + (kStoredK / group - 1) * kPairRows;
    std::memcpy(state.byte.data(), last, kPanelRows);
    return true;
  }
};

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

void pack_fp4(const PanelLayout& layout, const Rows& rows, int panel, const LineKernels& lines, const PairData& pair) {
  const Fp4Layout f = fp4_layout(layout);
  const BlockScaleView& scales = rows.w.block_scale;
  RowState state;
  state.byte.fill(f.first_byte);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t n = rows.first + r, row = scales.block_rows == 1 ? n : n / scales.block_rows;
    state.scales[r] = static_cast<const std::uint8_t*>(scales.data) + row * scales.row_stride;
  }
  const bool plain = whole_rows(rows) && scales.col_stride == 1;
  const PanelCodes codes(rows);
  const PlainFp4 plain_rows{layout, lines, codes, f.group, kPanelRows * scales.row_stride};
  for (std::int64_t k = 0; k < layout.cols; k += layout.segment_k()) {
    const Segment segment(layout, k);
    const SegmentTarget to = target_of(layout, k, panel, pair.records);
    std::int64_t done = 0;
    if (plain && segment.whole > 0 && plain_rows.pack(segment, state, to)) done = segment.whole;
    state.far = state.far || done < segment.records;
    for (std::int64_t i = done; i < segment.records; ++i) {
      const std::int64_t at = k + i * kStoredK;
      const Fp4Row row{layout, rows, scale_table(layout.format), f, at, at / f.group};
      pack_fp4_record(row, state, lines, to.record(i));
    }
  }
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    if (state.nan[r]) pair.output_scales[panel * kPanelRows + r] = std::numeric_limits<float>::quiet_NaN();
  }
  if (state.far && pair.perhaps_far != nullptr) pair.perhaps_far->store(true, std::memory_order_relaxed);
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

void pack_quantized_panel(const PanelLayout& layout, const PanelSource& source, int panel, const LineKernels& lines,
                          const PairData& pair) {
  const QuantTensor& w = *source.weight;
  const Rows rows{w, source.first_row, std::clamp<std::int64_t>(w.codes.rows - source.first_row, 0, kPanelRows)};
  float* outputs = pair.output_scales != nullptr ? pair.output_scales + panel * kPanelRows : nullptr;
  if (outputs != nullptr) pack_output_scales(rows, source.tensor_scale, outputs);
  if (layout.format == Format::fp8) {
    if (w.codes.dtype != DType::e4m3) {
      fail(ErrorCode::unsupported, std::string(dtype_name(w.codes.dtype)) + " weights in an fp8 recipe", "e4m3");
    }
    if (layout.scaled) pack_block_scales(layout, rows, source.tensor_scale, panel, pair.block_scales);
    return pack_fp8(layout, rows, panel, lines, pair.records);
  }
  check_fp4(layout, w);
  pack_fp4(layout, rows, panel, lines, pair);
}

}  // namespace sluice::cpu
