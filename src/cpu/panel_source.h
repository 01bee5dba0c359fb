// What packing quantised panels has in common for all formats: the rows of a panel in a file, and where records put
// them. Included by the units that pack (panel_quant.cc, panel_fp4.cc); plain data, used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/rounding.h"
#include "cpu/panel.h"

namespace sluice::cpu {

inline constexpr std::int64_t kPanelLine = 64;             // bytes of a panel in a step of a record
inline constexpr std::int64_t kPairLine = 2 * kPanelLine;  // of both
inline constexpr std::int64_t kBlockBytes = 64;            // of a row of kStoredK e4m3 codes; e2m1 has half of it

// Rows of one panel that exist, and where the source has them.
struct Rows {
  const QuantTensor& w;
  std::int64_t first;
  std::int64_t count;

  explicit Rows(const PanelSource& source)
      : w(*source.weight),
        first(source.first_row),
        count(std::clamp<std::int64_t>(w.codes.rows - source.first_row, 0, kPanelRows)) {}
  // All exist, with unit column stride: nothing has to be copied.
  bool whole() const { return count == kPanelRows && w.codes.col_stride == 1; }
};

// Copies of kStoredK columns of 16 rows that are not whole or are changed.
struct Block {
  alignas(16) std::byte rows[kPanelRows][kBlockBytes];
};

// Where the records of one segment put the first panel of a pair.
struct SegmentTarget {
  std::byte* scales = nullptr;  // in the first record
  std::byte* codes = nullptr;
  std::int64_t pitch = 0;  // bytes from a line of the panel to its next
  std::int64_t step = 0;   // bytes from record to record

  SegmentTarget record(std::int64_t i) const { return {scales + i * step, codes + i * step, pitch, step}; }
  SegmentTarget panel(int p) const { return {scales + p * kPanelRows, codes + p * kPanelLine, pitch, step}; }
};

// Of the segment that begins at k; `scale_bytes` of a record of one lane come before its codes.
inline SegmentTarget target_of(const PanelLayout& layout, std::int64_t k, std::int64_t scale_bytes,
                               std::byte* records) {
  const StoredPlace place = layout.place(k);
  std::byte* first = records + place.bytes;
  return {first + place.lane * scale_bytes, first + place.lanes * scale_bytes + place.lane * kPairLine,
          place.lanes * kPairLine, place.lanes * layout.bytes_of_k(kStoredK)};
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
    constexpr std::int64_t kFetchBytes = 64;  // of a row, after which FetchAhead goes on
    const std::int64_t at = halves ? k / 2 : k;
    const std::byte* next = first + rows_ahead * stride;
    const FetchAhead ahead = joined ? FetchAhead{next + kPanelRows * at, kFetchBytes, kPanelRows * kFetchBytes}
                                    : FetchAhead{next + at, stride, kFetchBytes};
    return {first + at, stride, records, to.codes, to.pitch, to.step, ahead};
  }
};

// One record of rows that are copies.
inline LineRun line_run(const Block& block, const SegmentTarget& to) {
  return {block.rows[0], kBlockBytes, 1, to.codes, to.pitch, to.step, {block.rows[0], 0, 0}};
}

// A pair of 4-bit panels. Throws Error(unsupported) for rows and block scales that panels cannot hold.
void pack_fp4_pair(const PanelLayout& layout, const Rows (&rows)[2], const LineKernels& lines, const PairData& pair);

}  // namespace sluice::cpu
