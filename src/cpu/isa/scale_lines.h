// Block scales of 16 rows > those of a pair, with vectors of 16 bytes: every table has them compiled with the
// registers and instructions of its unit. Internal linkage.
#pragma once

#include <emmintrin.h>

#include "cpu/isa/line_kernels.h"

namespace sluice::cpu {
namespace {

constexpr int kScaleRows = 16;
constexpr std::int64_t kScaleLine = 32;  // of both panels

struct ScaleGroups {
  __m128i v[kScaleRows];  // [16 rows] of one group each
};

inline __m128i load_scales(const std::uint8_t* from, std::int64_t bytes) {
  if (bytes == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if (bytes == 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  alignas(16) std::uint8_t row[16] = {};
  __builtin_memcpy(row, from, static_cast<std::size_t>(bytes));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(row));
}

// Interleaves the first half of the vectors with the second: four times that moves every bit of the row number behind
// those of the column. [16 rows][16 bytes] > [16 bytes][16 rows].
[[gnu::always_inline]] inline ScaleGroups interleaved(const ScaleGroups& from) {
  ScaleGroups to;
#pragma GCC unroll 8
  for (int i = 0; i < kScaleRows / 2; ++i) {
    to.v[2 * i] = _mm_unpacklo_epi8(from.v[i], from.v[i + kScaleRows / 2]);
    to.v[2 * i + 1] = _mm_unpackhi_epi8(from.v[i], from.v[i + kScaleRows / 2]);
  }
  return to;
}

// The least and the largest scale of every column.
struct Extent {
  __m128i least, most;

  [[gnu::always_inline]] void add(__m128i v) {
    least = _mm_min_epu8(least, v);
    most = _mm_max_epu8(most, v);
  }
  // Whether all are in the range, in the first `bytes` columns.
  [[gnu::always_inline]] bool within(std::uint8_t low, std::uint8_t high, std::int64_t bytes) const {
    const __m128i below = _mm_subs_epu8(_mm_set1_epi8(static_cast<char>(low)), least);
    const __m128i above = _mm_subs_epu8(most, _mm_set1_epi8(static_cast<char>(high)));
    const int good = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(below, above), _mm_setzero_si128()));
    const int wanted = (1 << bytes) - 1;
    return (good & wanted) == wanted;
  }
};

[[gnu::always_inline]] inline ScaleGroups load_groups(const ScaleRun& run, int panel, std::int64_t bytes,
                                                      Extent& extent) {
  ScaleGroups rows;
  extent = {_mm_set1_epi8(-1), _mm_setzero_si128()};
#pragma GCC unroll 16
  for (int r = 0; r < kScaleRows; ++r) {
    rows.v[r] = load_scales(run.rows[panel] + r * run.strides[panel], bytes);
    extent.add(rows.v[r]);
  }
  return rows;
}

// `Groups` of every record; a whole segment has `Most` of them.
template <int Groups, int Most, class Stored>
[[gnu::always_inline]] inline void store_groups(const ScaleRun& run, int panel, const ScaleGroups& rows,
                                                Stored stored) {
  const ScaleGroups g = interleaved(interleaved(interleaved(interleaved(rows))));
#pragma GCC unroll 16
  for (int i = 0; i < Most; ++i) {
    if (i >= Groups * run.records) break;
    std::byte* to = run.to + i / Groups * run.step + i % Groups * kScaleLine + panel * kScaleRows;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), stored(g.v[i]));
  }
}

// The stored byte (15 - exponent) * 8 + mantissa of a code exponent * 8 + mantissa. Plain are positive, normal numbers.
inline bool store_plain_nvfp4_scales(const ScaleRun& run) {
  constexpr std::uint8_t kLeast = 0x08, kMost = 0x7E;
  const std::int64_t bytes = 4 * run.records;
  for (int panel = 0; panel < 2; ++panel) {
    Extent extent;
    const ScaleGroups rows = load_groups(run, panel, bytes, extent);
    if (!extent.within(kLeast, kMost, bytes)) return false;
    store_groups<4, 16>(run, panel, rows, [](__m128i v) { return _mm_xor_si128(v, _mm_set1_epi8(0x78)); });
  }
  return true;
}

// The stored byte 254 - code. Plain are numbers up to 2^125; far are those beyond 2^-40 or 2^40.
inline bool store_plain_mxfp4_scales(const ScaleRun& run, bool& far) {
  constexpr std::uint8_t kMost = 252, kNearest = 127 - 40, kFarthest = 127 + 40;
  const std::int64_t bytes = 2 * run.records;
  for (int panel = 0; panel < 2; ++panel) {
    Extent extent;
    const ScaleGroups rows = load_groups(run, panel, bytes, extent);
    if (!extent.within(0, kMost, bytes)) return false;
    far = far || !extent.within(kNearest, kFarthest, bytes);
    store_groups<2, 8>(run, panel, rows,
                       [](__m128i v) { return _mm_sub_epi8(_mm_set1_epi8(static_cast<char>(254)), v); });
  }
  return true;
}

}  // namespace
}  // namespace sluice::cpu
