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
constexpr std::int64_t kFetchBytes = 64;            // of a row, after which FetchAhead goes on

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

// Copies of kStoredK columns of 16 rows that are not whole or are changed.
struct Block {
  alignas(16) std::byte rows[kPanelRows][kBlockBytes];
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

// The rows of codes of a panel, all there, with unit column stride.
struct PanelCodes {
  const std::byte* first = nullptr;
  std::int64_t stride = 0;               // bytes
  bool joined = false;                   // 4-bit rows with nothing between them
  bool halves = false;                   // two columns a byte
  std::int64_t rows_ahead = kPanelRows;  // from those of the panel to those that are fetched meanwhile

  explicit PanelCodes(const Rows& from) : halves(from.w.codes.dtype == DType::e2m1) {
    const MatrixView& c = from.w.codes;
    stride = halves ? c.row_stride / 2 : c.row_stride;
    first = static_cast<const std::byte*>(c.data) + from.first * stride;
    joined = halves && c.row_stride == c.cols;
    const std::int64_t panel_bytes = kPanelRows * stride;
    constexpr std::int64_t kAheadBytes = 12 << 10;  // what memory needs
    if (panel_bytes > 0 && panel_bytes < kAheadBytes) rows_ahead = ceil_div(kAheadBytes, panel_bytes) * kPanelRows;
  }
  // Whole records from column k on. Meanwhile the same part of the next panel is fetched, or as much of it in the order
  // of its addresses.
  LineRun run(std::int64_t k, std::int64_t records, const SegmentTarget& to) const {
    const std::int64_t at = halves ? k / 2 : k;
    const std::byte* next = first + rows_ahead * stride;
    const FetchAhead ahead = joined ? FetchAhead{next + kPanelRows * at, kFetchBytes, kPanelRows * kFetchBytes}
                                    : FetchAhead{next + at, stride, kFetchBytes};
    return {first + at, stride, records, to.codes, to.pitch, to.step, ahead};
  }
};

// One record of rows that are copies.
LineRun line_run(const Block& block, const SegmentTarget& to) {
  return {block.rows[0], kBlockBytes, 1, to.codes, to.pitch, to.step, {block.rows[0], 0, 0}};
}

// Zeros for rows and columns that don't exist.
void load_fp8(const Rows& rows, std::int64_t k, Block& block) {
  const MatrixView& c = rows.w.codes;
  const std::int64_t count = std::min<std::int64_t>(kStoredK, c.cols - k);
  std::memset(&block, 0, sizeof(block));
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    const auto* from = static_cast<const std::byte*>(c.data) + (rows.first + r) * c.row_stride + k * c.col_stride;
    for (std::int64_t i = 0; i < count && r < rows.count; ++i) block.rows[r][i] = from[i * c.col_stride];
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
  const std::uint8_t* scales_of_row() const {
    const BlockScaleView& s = rows.w.block_scale;
    return static_cast<const std::uint8_t*>(s.data) + n() / s.block_rows * s.row_stride;
  }
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
    if (count > 0) row.scales = row.scales_of_row();
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
    copy ? row.copy(block.rows[r]) : static_cast<void>(std::memcpy(block.rows[r], row.codes(), kStoredK / 2));
  }
  store_fp4(lines, row.layout.format, line_run(block, to));
}

// Rows that all exist, with their scales one after the other.
struct PlainFp4 {
  const PanelLayout& layout;
  const LineKernels& lines;
  PanelCodes codes;
  const std::uint8_t* scales;  // of the first row
  std::int64_t scale_stride;   // bytes from those of a row to those of the next

  PlainFp4(const PanelLayout& to, const Rows& rows, const LineKernels& with)
      : layout(to), lines(with), codes(rows), scale_stride(rows.w.block_scale.row_stride) {
    scales = static_cast<const std::uint8_t*>(rows.w.block_scale.data) + rows.first * scale_stride;
  }
  static bool fits(const Rows& rows) {
    return whole_rows(rows) && rows.w.block_scale.block_rows == 1 && rows.w.block_scale.col_stride == 1;
  }

  // The whole records of a segment. Returns false where a scale or a block of zeros needs pack_fp4_record, which then
  // writes all of them again.
  bool pack(const Segment& segment, RowState& state, const SegmentTarget& to) const {
    constexpr std::int64_t kCacheLine = 64;
    const bool nvfp4 = layout.format == Format::nvfp4;
    const std::int64_t first_group = nvfp4 ? segment.k / 16 : segment.k / 32;
    if (first_group % kCacheLine == 0) fetch_scales(first_group);
    const ScaleRun run{scales + first_group, scale_stride, segment.whole, to.scales, to.step};
    const LineRun codes_run = codes.run(segment.k, segment.whole, to);
    if (nvfp4) {
      if (!lines.nvfp4_scales(run)) return false;
      lines.nvfp4(codes_run);
    } else if (!lines.mxfp4_scales(run, state.far) || lines.mxfp4(codes_run)) {
      return false;
    }
    const std::int64_t last_group = nvfp4 ? 3 : 1;
    std::memcpy(state.byte.data(), to.record(segment.whole - 1).scales + last_group * kPairRows, kPanelRows);
    return true;
  }
  // Those of the next panel. Inlined by force: GCC 12 finds that a function that only fetches does nothing.
  [[gnu::always_inline]] void fetch_scales(std::int64_t group) const {
    const std::uint8_t* next = scales + codes.rows_ahead * scale_stride + group;
    for (std::int64_t r = 0; r < kPanelRows; ++r) __builtin_prefetch(next + r * scale_stride, 0, 2);
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
  RowState state;
  state.byte.fill(f.first_byte);
  const bool plain = PlainFp4::fits(rows);
  const PlainFp4 plain_rows(layout, rows, lines);
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
