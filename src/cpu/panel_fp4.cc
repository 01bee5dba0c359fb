#include <emmintrin.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/panel_source.h"
#include "cpu/stored_scale.h"
#include "numerics/e8m0.h"

// 4-bit codes of a file into pairs of panels: a permutation of nibbles, and block scales in the form that decoding
// wants.
namespace sluice::cpu {
namespace {

constexpr std::int64_t kOctet = 8;  // k of a 32-bit word of codes

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

// What goes on from record to record of the rows of a panel.
struct RowState {
  std::array<std::uint8_t, kPanelRows> byte;  // last stored scale
  std::array<bool, kPanelRows> nan{};         // whether a scale is NaN
  bool behind = false;                        // `byte` is not that of the records packed last, whose scales are plain
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

// The scales before the record, which were plain.
void catch_up(Fp4Row row, RowState& state) {
  for (row.r = 0; row.r < kPanelRows; ++row.r) {
    row.scales = row.scales_of_row();
    state.byte[row.r] = row.scale(-1).byte;
  }
  state.behind = false;
}

// The records of a segment from `begin` on, one at a time.
void pack_fp4_records(Fp4Row row, const Segment& segment, std::int64_t begin, RowState& state, const LineKernels& lines,
                      const SegmentTarget& to) {
  for (std::int64_t i = begin; i < segment.records; ++i) {
    row.k = segment.k + i * kStoredK;
    row.first_group = row.k / row.f.group;
    if (state.behind) catch_up(row, state);
    pack_fp4_record(row, state, lines, to.record(i));
  }
}

// Pairs of rows that all exist, with their scales one after the other.
class PlainPair {
 public:
  PlainPair(const PanelLayout& layout, const Rows (&rows)[2], const LineKernels& lines)
      : nvfp4_(layout.format == Format::nvfp4), lines_(lines), codes_{PanelCodes(rows[0]), PanelCodes(rows[1])} {
    fits_ = plain(rows[0]) && plain(rows[1]);
    const std::int64_t pair_rows = &rows[0].w == &rows[1].w ? kPairRows : kPanelRows;
    for (int p = 0; p < 2; ++p) {
      const BlockScaleView& s = rows[p].w.block_scale;
      Scales& of = scales_[p];
      of.stride = s.row_stride;
      of.joined = s.row_stride == layout.cols / s.block_cols;
      of.first = static_cast<const std::uint8_t*>(s.data) + rows[p].first * of.stride;
      of.next = of.first + std::max(codes_[p].rows_ahead, pair_rows) * of.stride;
    }
  }

  // Those of the whole records of a segment, for both panels. Returns false where there are none, or one needs
  // pack_fp4_record.
  bool store_scales(const Segment& segment, const SegmentTarget& to, bool& far) const {
    if (!fits_ || segment.whole == 0) return false;
    const std::int64_t group = first_group(segment);
    const ScaleRun run{{scales_[0].first + group, scales_[1].first + group},
                       {scales_[0].stride, scales_[1].stride},
                       segment.whole,
                       to.scales,
                       to.step};
    return nvfp4_ ? lines_.nvfp4_scales(run) : lines_.mxfp4_scales(run, far);
  }
  // The codes of one panel. Returns false where a block of zeros needs pack_fp4_record, which then writes all again.
  bool store_codes(int panel, const Segment& segment, const SegmentTarget& to) const {
    fetch_scales(scales_[panel], first_group(segment));
    const LineRun run = codes_[panel].run(segment.k, segment.whole, to);
    if (!nvfp4_) return !lines_.mxfp4(run);
    lines_.nvfp4(run);
    return true;
  }

 private:
  struct Scales {
    const std::uint8_t* first = nullptr;
    const std::uint8_t* next = nullptr;  // of a later panel, which are fetched meanwhile
    std::int64_t stride = 0;             // bytes from those of a row to those of the next
    bool joined = false;                 // nothing between them
  };

  static bool plain(const Rows& rows) {
    return rows.whole() && rows.w.block_scale.block_rows == 1 && rows.w.block_scale.col_stride == 1;
  }
  std::int64_t first_group(const Segment& segment) const { return nvfp4_ ? segment.k / 16 : segment.k / 32; }
  // As many as the segment has. Inlined by force: GCC 12 finds that a function that only fetches does nothing.
  [[gnu::always_inline]] void fetch_scales(const Scales& s, std::int64_t group) const {
    constexpr std::int64_t kCacheLine = 64;
    if (s.joined) {
      const std::uint8_t* next = s.next + kPanelRows * group;
      const std::int64_t bytes = kPanelRows * (nvfp4_ ? kSegmentK / 16 : kSegmentK / 32);
      for (std::int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(next + i, 0, 2);
    } else if (group % kCacheLine == 0) {
      for (std::int64_t r = 0; r < kPanelRows; ++r) __builtin_prefetch(s.next + group + r * s.stride, 0, 2);
    }
  }

  bool nvfp4_;
  bool fits_ = false;
  const LineKernels& lines_;
  PanelCodes codes_[2];
  Scales scales_[2];
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

}  // namespace

void pack_fp4_pair(const PanelLayout& layout, const Rows (&rows)[2], const LineKernels& lines, const PairData& pair) {
  const Fp4Layout f = fp4_layout(layout);
  const ScaleTable& table = scale_table(layout.format);
  RowState states[2];
  for (int p = 0; p < 2; ++p) {
    check_fp4(layout, rows[p].w);
    states[p].byte.fill(f.first_byte);
  }
  const PlainPair plain(layout, rows, lines);
  bool far = false;
  for (std::int64_t k = 0; k < layout.cols; k += kSegmentK) {
    const Segment segment(layout, k);
    const SegmentTarget to = target_of(layout, k, f.scale_bytes, pair.records);
    const bool stored = plain.store_scales(segment, to, far);
    for (int p = 0; p < 2; ++p) {
      const bool whole = stored && plain.store_codes(p, segment, to.panel(p));
      const std::int64_t done = whole ? segment.whole : 0;
      states[p].behind = states[p].behind || whole;
      far = far || done < segment.records;
      pack_fp4_records({layout, rows[p], table, f, 0, 0}, segment, done, states[p], lines, to.panel(p));
    }
  }
  for (int p = 0; p < 2; ++p) {
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
      if (states[p].nan[r]) pair.output_scales[p * kPanelRows + r] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (far && pair.perhaps_far != nullptr) pair.perhaps_far->store(true, std::memory_order_relaxed);
}

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

}  // namespace sluice::cpu
