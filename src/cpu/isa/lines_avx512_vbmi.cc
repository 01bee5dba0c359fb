// AVX-512 with VBMI, which takes any eight bits of a word for each byte: nibbles change places before rows become
// lines, by three instructions, and lines are made as those of wider codes are. Scales of a whole segment are turned
// over in wide vectors, by permutations of any bytes.
#include "cpu/isa/lines_zmm.h"

namespace sluice::cpu {
namespace {

struct ZmmVbmi : Zmm {
  static constexpr bool kPicksBits = true;

  // Of every 32 bits nibbles 0 to 3 into the low halves of the bytes, and 4 to 7 into their high halves.
  static R mixed_halves(R v) { return picked<0, 4, 8, 12>(v, picked_high<16, 20, 24, 28>(v)); }
  // Nibbles 0, 2, 4, 6 into the low half and 1, 3, 5, 7 into the high half.
  static R even_then_odd(R v) { return picked<0, 16, 4, 20>(v, picked_high<8, 24, 12, 28>(v)); }

 private:
  template <int A, int B, int C, int D>
  static R picked_at(R v) {
    constexpr auto kBits = [](int first) {
      const auto at = [first](int bit) { return static_cast<long long>((first + bit) & 63); };
      return at(A) | at(B) << 8 | at(C) << 16 | at(D) << 24;
    };
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kBits(0) | kBits(32) << 32), v);
  }
  // Nibbles that begin with these bits, in the high halves of bytes; the low halves are others.
  template <int A, int B, int C, int D>
  static R picked_high(R v) {
    return picked_at<A - 4, B - 4, C - 4, D - 4>(v);
  }
  // Nibbles that begin with these bits in the low halves of bytes, and the high halves of `high`.
  template <int A, int B, int C, int D>
  static R picked(R v, R high) {
    constexpr int kMaskChooses = 0xCA;       // first operand ? second : third
    const R low = picked_at<A, B, C, D>(v);  // a name, since clang's intrinsic is a macro, which commas split
    return _mm512_ternarylogic_epi64(each_8(0x0F), low, high, kMaskChooses);
  }
};

constexpr int kScaleRecords = 4;  // of a segment
constexpr int kLineBytes = 64;

// The first `Bytes` (8 or 16) of each of four rows, a row in a lane.
template <int Bytes>
[[gnu::always_inline]] inline __m512i load_quad(const std::uint8_t* row, std::int64_t stride) {
  const auto load = [&](int i) {
    const auto* from = reinterpret_cast<const __m128i*>(row + i * stride);
    return Bytes == 16 ? _mm_loadu_si128(from) : _mm_loadl_epi64(from);
  };
  const __m512i first = _mm512_inserti32x4(_mm512_castsi128_si512(load(0)), load(1), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(first, load(2), 2), load(3), 3);
}

// Lane i of the four vectors, in their order, to line `line` of the scales of record i, past the cache: what is not
// whole lines would be read before it is written.
[[gnu::always_inline]] inline void store_lines(const ScaleRun& run, int line, const Rows4<Zmm>& v) {
  const __m512i a = _mm512_shuffle_i32x4(v.v[0], v.v[1], 0x44), b = _mm512_shuffle_i32x4(v.v[2], v.v[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(v.v[0], v.v[1], 0xEE), d = _mm512_shuffle_i32x4(v.v[2], v.v[3], 0xEE);
  const auto store = [&](int record, __m512i scales) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(run.to + record * run.step + line * kLineBytes), scales);
  };
  store(0, _mm512_shuffle_i32x4(a, b, 0x88));
  store(1, _mm512_shuffle_i32x4(a, b, 0xDD));
  store(2, _mm512_shuffle_i32x4(c, d, 0x88));
  store(3, _mm512_shuffle_i32x4(c, d, 0xDD));
}

bool whole_segment(const ScaleRun& run) {
  const auto address = reinterpret_cast<std::uintptr_t>(run.to);
  return run.records == kScaleRecords && (address | static_cast<std::uintptr_t>(run.step)) % kLineBytes == 0;
}

// Where [records as lanes][groups][rows] is taken from, when a vector has 16 bytes of each of four rows: of one vector,
// or of two that follow each other.
template <int Groups, int Rows>
struct ScaleOrder {
  alignas(64) std::uint8_t from[64];
  constexpr ScaleOrder() : from() {
    for (int i = 0; i < 64; ++i) {
      const int column = i / 16 * Groups + i % 16 / Rows, row = i % Rows;
      from[i] = static_cast<std::uint8_t>(16 * row + column);
    }
  }
};
constexpr ScaleOrder<4, 4> kNvfp4Order;
constexpr ScaleOrder<2, 8> kMxfp4Order;

// [4 groups], each [records as lanes][16 rows], of one panel. Bytes that are not plain are marked in `others`.
[[gnu::always_inline]] inline Rows4<Zmm> nvfp4_groups(const std::uint8_t* rows, std::int64_t stride,
                                                      __mmask64& others) {
  const __m512i order = _mm512_load_si512(kNvfp4Order.from);
  Rows4<Zmm> quads;
#pragma GCC unroll 4
  for (int q = 0; q < kQuads; ++q) {
    const __m512i v = load_quad<16>(rows + q * kRowsOfQuad * stride, stride);
    others |= _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(0x08)), _mm512_set1_epi8(0x7E - 0x08));
    quads.v[q] = _mm512_permutexvar_epi8(order, _mm512_xor_si512(v, _mm512_set1_epi8(0x78)));
  }
  return transpose_32<Zmm>(quads);
}

// As store_plain_nvfp4_scales; a whole segment in wide vectors.
bool store_nvfp4_scales(const ScaleRun& given) {
  const ScaleRun run = given;
  if (!whole_segment(run)) return store_plain_nvfp4_scales(run);
  __mmask64 others = 0;
  const Rows4<Zmm> first = nvfp4_groups(run.rows[0], run.strides[0], others);
  const Rows4<Zmm> second = nvfp4_groups(run.rows[1], run.strides[1], others);
  if (others != 0) return false;
  store_lines(run, 0, {{first.v[0], second.v[0], first.v[1], second.v[1]}});
  store_lines(run, 1, {{first.v[2], second.v[2], first.v[3], second.v[3]}});
  return true;
}

// Bytes of a panel that are beyond what is stored, and beyond what is near.
struct Mxfp4Seen {
  __mmask64 others = 0, beyond = 0;
};

// [2 groups], each [records as lanes][16 rows], of one panel.
[[gnu::always_inline]] inline Two<Zmm> mxfp4_groups(const std::uint8_t* rows, std::int64_t stride, Mxfp4Seen& seen) {
  constexpr int kMost = 252, kNearest = 127 - 40, kFarthest = 127 + 40;
  __m512i quads[kQuads];
#pragma GCC unroll 4
  for (int q = 0; q < kQuads; ++q) {
    const __m512i v = load_quad<8>(rows + q * kRowsOfQuad * stride, stride);
    seen.others |= _mm512_cmpgt_epu8_mask(v, _mm512_set1_epi8(static_cast<char>(kMost)));
    seen.beyond |=
        _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(kNearest)), _mm512_set1_epi8(kFarthest - kNearest));
    quads[q] = _mm512_sub_epi8(_mm512_set1_epi8(static_cast<char>(254)), v);
  }
  const __m512i order = _mm512_load_si512(kMxfp4Order.from);
  const __m512i first = _mm512_permutex2var_epi8(quads[0], order, quads[1]);
  const __m512i second = _mm512_permutex2var_epi8(quads[2], order, quads[3]);
  return {_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second)};
}

// As store_plain_mxfp4_scales.
bool store_mxfp4_scales(const ScaleRun& given, bool& far) {
  constexpr __mmask64 kLoaded = 0x00FF00FF00FF00FF;
  const ScaleRun run = given;
  if (!whole_segment(run)) return store_plain_mxfp4_scales(run, far);
  Mxfp4Seen seen;
  const Two<Zmm> first = mxfp4_groups(run.rows[0], run.strides[0], seen);
  const Two<Zmm> second = mxfp4_groups(run.rows[1], run.strides[1], seen);
  if (seen.others != 0) return false;
  far = far || (seen.beyond & kLoaded) != 0;
  store_lines(run, 0, {{first.a, second.a, first.b, second.b}});
  return true;
}

constexpr LineKernels with_wide_scales(LineKernels table) {
  table.nvfp4_scales = store_nvfp4_scales;
  table.mxfp4_scales = store_mxfp4_scales;
  return table;
}

constexpr LineKernels kTable = with_wide_scales(make_line_table<ZmmVbmi>());

}  // namespace

const LineKernels& line_kernels_avx512_vbmi() { return kTable; }

}  // namespace sluice::cpu
