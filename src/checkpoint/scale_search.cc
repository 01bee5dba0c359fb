#include "checkpoint/scale_search.h"

#include <emmintrin.h>

namespace sluice::ckpt {
namespace {

// A code as a number that is the larger the worse.
struct E4m3 {
  static constexpr std::uint8_t kMost = 0x7E;  // then NaN, and from 0x81 on negative numbers
  static std::uint8_t rank(std::uint8_t code) { return code == 0x80 ? std::uint8_t{0} : code; }
  static __m128i rank(__m128i codes) {
    return _mm_andnot_si128(_mm_cmpeq_epi8(codes, _mm_set1_epi8(static_cast<char>(0x80))), codes);
  }
};
struct E8m0 {
  static std::uint8_t rank(std::uint8_t code) { return code; }
  static __m128i rank(__m128i codes) { return codes; }
};

// The largest ranks of 64 codes.
template <class Code>
__m128i worst_of_line(const std::byte* codes) {
  const auto* v = reinterpret_cast<const __m128i*>(codes);
  const auto at = [v](int i) { return Code::rank(_mm_loadu_si128(v + i)); };
  return _mm_max_epu8(_mm_max_epu8(at(0), at(1)), _mm_max_epu8(at(2), at(3)));
}

bool any_above(__m128i ranks, std::uint8_t most) {
  const __m128i bound = _mm_set1_epi8(static_cast<char>(most));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(ranks, bound), bound)) != 0xFFFF;
}

// Whether any of the codes is bad is asked once a block.
template <class Code>
std::int64_t first_above(const std::byte* codes, std::int64_t count, std::uint8_t most) {
  constexpr std::int64_t kLine = 64, kBlock = 64 * kLine, kAhead = 2048;
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t end = begin + kBlock < count ? begin + kBlock : count;
    __m128i worst = _mm_setzero_si128();
    std::int64_t i = begin;
    for (; i + kLine <= end; i += kLine) {
      __builtin_prefetch(codes + i + kAhead);  // beyond the page, where hardware stops
      worst = _mm_max_epu8(worst, worst_of_line<Code>(codes + i));
    }
    if (any_above(worst, most)) i = begin;
    for (; i < end; ++i) {
      if (Code::rank(std::to_integer<std::uint8_t>(codes[i])) > most) return i;
    }
    begin = end;
  }
  return -1;
}

}  // namespace

std::int64_t first_bad_e4m3(const std::byte* codes, std::int64_t count) {
  return first_above<E4m3>(codes, count, E4m3::kMost);
}

std::int64_t first_bad_e8m0(const std::byte* codes, std::int64_t count, std::uint8_t most) {
  return first_above<E8m0>(codes, count, most);
}

}  // namespace sluice::ckpt
