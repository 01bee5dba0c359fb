#include "cpu/panel_codes.h"

#include <emmintrin.h>

#include <cstring>

namespace sluice::cpu {
namespace {

struct Groups {
  __m128i v[kPanelRows];  // [16 rows] of one group each
};

__m128i load_row(const std::uint8_t* from, std::size_t bytes) {
  if (bytes == sizeof(__m128i)) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if (bytes == sizeof(__m128i) / 2) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  alignas(16) std::uint8_t row[sizeof(__m128i)] = {};
  std::memcpy(row, from, bytes);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(row));
}

// [16 rows][16 bytes] > [16 bytes][16 rows]: interleaving halves four times moves every bit of the row number behind
// those of the column.
Groups transposed(const ScaleRun& run, std::size_t bytes) {
  Groups g;
  for (std::size_t r = 0; r < kPanelRows; ++r) g.v[r] = load_row(run.rows[r], bytes);
  for (int round = 0; round < 4; ++round) {
    const Groups from = g;
    for (int i = 0; i < kPanelRows / 2; ++i) {
      g.v[2 * i] = _mm_unpacklo_epi8(from.v[i], from.v[i + kPanelRows / 2]);
      g.v[2 * i + 1] = _mm_unpackhi_epi8(from.v[i], from.v[i + kPanelRows / 2]);
    }
  }
  return g;
}

bool any(__m128i mask) { return _mm_movemask_epi8(mask) != 0; }
bool all_zero(__m128i v) { return _mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128())) == 0xFFFF; }

void store(const ScaleRun& run, std::int64_t groups_of_record, std::int64_t group, __m128i v) {
  std::byte* to = run.to + group / groups_of_record * run.step + group % groups_of_record * kPairRows;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v);
}

}  // namespace

// The stored byte (15 - exponent) * 8 + mantissa of a code exponent * 8 + mantissa.
bool store_plain_nvfp4_scales(const ScaleRun& run) {
  constexpr std::int64_t kGroups = 4;
  const __m128i exponent = _mm_set1_epi8(0x78), magnitude = _mm_set1_epi8(0x7F);
  const std::int64_t count = kGroups * run.records;
  const Groups groups = transposed(run, static_cast<std::size_t>(count));
  __m128i others = _mm_setzero_si128();
  for (std::int64_t i = 0; i < count; ++i) {
    const __m128i v = groups.v[i];
    others = _mm_or_si128(others, _mm_cmpeq_epi8(_mm_and_si128(v, exponent), _mm_setzero_si128()));
    others = _mm_or_si128(others, _mm_cmpeq_epi8(_mm_and_si128(v, magnitude), magnitude));
    others = _mm_or_si128(others, v);  // its sign
  }
  if (any(others)) return false;
  for (std::int64_t i = 0; i < count; ++i) store(run, kGroups, i, _mm_xor_si128(groups.v[i], exponent));
  return true;
}

bool store_plain_mxfp4_scales(const ScaleRun& run, bool& far) {
  constexpr std::int64_t kGroups = 2;
  constexpr char kNearest = 127 - 40;
  const __m128i largest = _mm_set1_epi8(static_cast<char>(252)), zero = _mm_set1_epi8(static_cast<char>(254));
  const __m128i low = _mm_set1_epi8(kNearest), high = _mm_set1_epi8(static_cast<char>(127 + 40));
  const std::int64_t count = kGroups * run.records;
  const Groups groups = transposed(run, static_cast<std::size_t>(count));
  __m128i above = _mm_setzero_si128(), outside = _mm_setzero_si128();
  for (std::int64_t i = 0; i < count; ++i) {
    const __m128i v = groups.v[i];
    above = _mm_or_si128(above, _mm_subs_epu8(v, largest));
    outside = _mm_or_si128(outside, _mm_or_si128(_mm_subs_epu8(v, high), _mm_subs_epu8(low, v)));
  }
  if (!all_zero(above)) return false;
  far = far || !all_zero(outside);
  for (std::int64_t i = 0; i < count; ++i) store(run, kGroups, i, _mm_sub_epi8(zero, groups.v[i]));
  return true;
}

}  // namespace sluice::cpu
