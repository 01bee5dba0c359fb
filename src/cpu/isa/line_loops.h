// Rows > lines of panels, for vectors of one, two or four lanes of 16 bytes: a lane holds a quad of rows, so that all
// shuffles stay inside lanes. Internal linkage; V is the vector of the unit that includes this.
#pragma once

#include <emmintrin.h>

#include "cpu/isa/line_kernels.h"
#include "cpu/isa/scale_lines.h"

namespace sluice::cpu {
namespace {

constexpr int kQuads = 4;  // of the 16 rows of a panel
constexpr int kRowsOfQuad = 4;

// Row i of every quad of a vector, 16 bytes of each.
template <class V>
struct Rows4 {
  typename V::R v[kRowsOfQuad];
};

// In every lane [4 rows][4 words of 32 bits] > [4 words][4 rows].
template <class V>
[[gnu::always_inline]] inline Rows4<V> transpose_32(const Rows4<V>& r) {
  const auto a = V::low_32(r.v[0], r.v[1]), b = V::low_32(r.v[2], r.v[3]);
  const auto c = V::high_32(r.v[0], r.v[1]), d = V::high_32(r.v[2], r.v[3]);
  return {{V::low_64(a, b), V::high_64(a, b), V::low_64(c, d), V::high_64(c, d)}};
}

// [4 rows][4 words][2 halves of 16 bits] > [4 words][2 halves][4 rows].
template <class V>
[[gnu::always_inline]] inline Rows4<V> transpose_16(const Rows4<V>& r) {
  const auto a = V::low_16(r.v[0], r.v[1]), b = V::low_16(r.v[2], r.v[3]);
  const auto c = V::high_16(r.v[0], r.v[1]), d = V::high_16(r.v[2], r.v[3]);
  return {{V::low_32(a, b), V::high_32(a, b), V::low_32(c, d), V::high_32(c, d)}};
}

// [4 rows][4 words][4 bytes] > [4 words][4 bytes][4 rows].
template <class V>
[[gnu::always_inline]] inline Rows4<V> transpose_8(const Rows4<V>& r) {
  const auto a = V::low_8(r.v[0], r.v[2]), b = V::low_8(r.v[1], r.v[3]);
  const auto c = V::high_8(r.v[0], r.v[2]), d = V::high_8(r.v[1], r.v[3]);
  return {{V::low_8(a, b), V::high_8(a, b), V::low_8(c, d), V::high_8(c, d)}};
}

template <class V>
struct Two {
  typename V::R a, b;
};

// Of a and b, each [4 words][4 bytes][4 rows] of one line: nibbles 0 to 3 of a word into the low halves of bytes 0 to
// 3, and 4 to 7 into their high halves; [4 bytes][4 rows] > [2 k pairs][4 rows][2 k].
template <class V>
[[gnu::always_inline]] inline Two<V> fold_halves(typename V::R a, typename V::R b) {
  const auto low = V::each_8(0x0F);
  const auto first = V::low_64(a, b), second = V::high_64(a, b);  // bytes 0 and 1, 2 and 3
  const auto even = V::bit_or(V::bit_and(first, low), V::template left_16<4>(V::bit_and(second, low)));
  const auto odd = V::bit_or(V::bit_and(V::template right_16<4>(first), low), V::and_not(low, second));
  return {V::low_8(even, odd), V::high_8(even, odd)};
}

// Of every 32 bits of a and b nibbles 0, 2, 4, 6 into the low half and 1, 3, 5, 7 into the high half.
template <class V>
[[gnu::always_inline]] inline Two<V> split_even_odd(typename V::R a, typename V::R b) {
  const auto nibbles = V::each_8(0x0F), bytes = V::each_16(0x00FF);
  const auto pairs = [&](auto v)
                         [[gnu::always_inline]] { return V::bit_and(V::bit_or(v, V::template right_16<4>(v)), bytes); };
  const auto even = [&](auto v) [[gnu::always_inline]] { return pairs(V::bit_and(v, nibbles)); };
  const auto odd = [&](auto v)
                       [[gnu::always_inline]] { return pairs(V::bit_and(V::template right_16<4>(v), nibbles)); };
  const auto evens = V::pack_16(even(a), even(b)), odds = V::pack_16(odd(a), odd(b));
  return {V::low_16(evens, odds), V::high_16(evens, odds)};
}

// All bits of `lines` that lie in magnitudes, [rows].
template <class V>
[[gnu::always_inline]] inline typename V::R magnitudes_of(const Rows4<V>& lines) {
  const auto any = V::bit_or(V::bit_or(lines.v[0], lines.v[1]), V::bit_or(lines.v[2], lines.v[3]));
  return V::bit_and(any, V::each_8(0x77));
}

// 16 bytes of each row > four lines.
template <class V>
struct Bf16Lines {
  [[gnu::always_inline]] Rows4<V> operator()(const Rows4<V>& r) { return transpose_32<V>(r); }
};
template <class V>
struct Fp8Lines {
  [[gnu::always_inline]] Rows4<V> operator()(const Rows4<V>& r) { return transpose_16<V>(r); }
};
template <class V>
struct Nvfp4Lines {
  [[gnu::always_inline]] Rows4<V> operator()(const Rows4<V>& rows) {
    if constexpr (V::kPicksBits) {
      return transpose_16<V>({{V::mixed_halves(rows.v[0]), V::mixed_halves(rows.v[1]), V::mixed_halves(rows.v[2]),
                               V::mixed_halves(rows.v[3])}});
    } else {
      const Rows4<V> r = transpose_8<V>(rows);
      const Two<V> first = fold_halves<V>(r.v[0], r.v[1]), second = fold_halves<V>(r.v[2], r.v[3]);
      return {{first.a, first.b, second.a, second.b}};
    }
  }
};
template <class V>
struct Mxfp4Lines {
  bool zero_block = false;
  [[gnu::always_inline]] Rows4<V> operator()(const Rows4<V>& rows) {
    const Rows4<V> r = transpose_32<V>(rows);
    zero_block |= V::any_zero_32(magnitudes_of<V>(r));
    if constexpr (V::kPicksBits) {
      return {{V::even_then_odd(r.v[0]), V::even_then_odd(r.v[1]), V::even_then_odd(r.v[2]), V::even_then_odd(r.v[3])}};
    } else {
      const Two<V> first = split_even_odd<V>(r.v[0], r.v[1]), second = split_even_odd<V>(r.v[2], r.v[3]);
      return {{first.a, first.b, second.a, second.b}};
    }
  }
};

// What is read at once: `Bytes` (32 or 64) of every row, which make Bytes / 4 lines of one record of `Record` bytes a
// row, or of two.
template <int Bytes_, int Record_>
struct Chunk {
  static constexpr int kBytes = Bytes_, kRecord = Record_;
  static constexpr int kRecords = Bytes_ / Record_;
};

// Where reading and writing are. One pointer for each quad of rows and multiples of the stride that addresses can hold:
// sixteen pointers would not stay in registers.
struct Cursor {
  const std::byte* quads[kQuads];
  const std::byte* ahead;
  std::byte* to;

  [[gnu::always_inline]] explicit Cursor(const LineRun& run) : ahead(run.ahead.from), to(run.to) {
    for (int q = 0; q < kQuads; ++q) quads[q] = run.rows + q * kRowsOfQuad * run.stride;
  }
};

// Copies, since what is stored might lie in the LineRun for all that compilers know.
struct Strides {
  std::int64_t row, line, to_next_record, ahead, ahead_chunk;

  [[gnu::always_inline]] Strides(const LineRun& run, int lines_of_record)
      : row(run.stride),
        line(run.pitch),
        to_next_record(run.step - lines_of_record * run.pitch),  // from behind the last line of a record
        ahead(run.ahead.pitch),
        ahead_chunk(run.ahead.step) {}
};

[[gnu::always_inline]] inline const std::byte* row_of_quad(const std::byte* quad, std::int64_t stride, int i) {
  return quad + (i == 0 ? 0 : i == 1 ? stride : i == 2 ? 2 * stride : 3 * stride);
}

// Nothing, but compilers no longer know what the pointer was made of. Otherwise they keep one for every row and line of
// the wide vectors, for which there are no registers, and prepare them in each call, of which there is one for every
// segment. Loops over narrow vectors are faster as compilers make them.
template <class V, class Byte>
[[gnu::always_inline]] inline void keep_pointer(Byte*& p) {
  if constexpr (V::kLanes == kQuads) __asm__("" : "+r"(p));
}

template <class V>
[[gnu::always_inline]] inline void fetch_lines(const std::byte*& line, int count, std::int64_t pitch) {
  for (int i = 0; i < count; ++i, line += pitch, keep_pointer<V>(line)) __builtin_prefetch(line, 0, 2);
}

// The chunk at the cursor. All that it needs of a row is read at once: rows are often a power of two apart, where few
// lines fit into the cache at once. Sixteen rows are also more streams than hardware follows, so what comes next is
// asked for.
template <class V, class Chunk, bool Stream, class Lines>
[[gnu::always_inline]] inline void store_chunk(Cursor& at, const Strides& by, bool fetch, Lines& lines) {
  constexpr int kPieces = Chunk::kBytes / 16, kPiecesOfRecord = Chunk::kRecord / 16;
  constexpr int kFetchedLines = V::kLanes * kRowsOfQuad / kPieces;
  const std::byte* ahead = at.ahead;
  for (int quad = 0; quad < kQuads; quad += V::kLanes) {
    Rows4<V> pieces[kPieces];
    for (int i = 0; i < kRowsOfQuad; ++i) {
      typename V::R of_row[kPieces];
      V::template load<Chunk::kBytes>(at.quads + quad, by.row, i, of_row);
      for (int p = 0; p < kPieces; ++p) pieces[p].v[i] = of_row[p];
    }
    std::byte* to = at.to + quad * 16;
    for (int p = 0; p < kPieces; ++p) {
      if (fetch) fetch_lines<V>(ahead, kFetchedLines, by.ahead);
      const Rows4<V> out = lines(pieces[p]);
      for (int i = 0; i < 4; ++i, to += by.line, keep_pointer<V>(to)) V::template store<Stream>(to, out.v[i]);
      if (p % kPiecesOfRecord == kPiecesOfRecord - 1) to += by.to_next_record;
    }
    if (quad + V::kLanes == kQuads) at.to = to - quad * 16;
  }
  for (const std::byte*& quad : at.quads) {
    quad += Chunk::kBytes;
    keep_pointer<V>(quad);
  }
  if (fetch) at.ahead += by.ahead_chunk;
}

// Wide vectors have registers for two records of 4-bit codes, which takes half of the shuffles that bring 16 bytes of
// rows together.
template <class V, int Record, bool Stream, class Lines>
void store_records_to(const LineRun& run, Lines& lines) {
  const Strides by(run, Record / 4);
  Cursor at(run);
  std::int64_t left = run.records;
  if constexpr (V::kLanes == kQuads && Record == 32) {
    for (; left >= 2; left -= 2) store_chunk<V, Chunk<64, Record>, Stream>(at, by, true, lines);
  }
  for (; left > 0; --left) {
    store_chunk<V, Chunk<Record, Record>, Stream>(at, by, Record == 64 || left % 2 == 0, lines);
  }
}

template <class V, int Record, class Lines>
void store_records(const LineRun& run, Lines& lines) {
  constexpr std::uintptr_t kLine = 64;
  const auto address = reinterpret_cast<std::uintptr_t>(run.to);
  const bool whole_lines = (address | static_cast<std::uintptr_t>(run.pitch | run.step)) % kLine == 0;
  if (V::kLanes == kQuads && whole_lines) return store_records_to<V, Record, true>(run, lines);
  store_records_to<V, Record, false>(run, lines);
}

template <class V, int Record, template <class> class Lines>
void store_run(const LineRun& run) {
  Lines<V> lines;
  store_records<V, Record>(run, lines);
}

template <class V>
bool store_mxfp4(const LineRun& run) {
  Mxfp4Lines<V> lines;
  store_records<V, 32>(run, lines);
  return lines.zero_block;
}

template <class V>
constexpr LineKernels make_line_table() {
  return {store_run<V, 64, Bf16Lines>, store_run<V, 64, Fp8Lines>, store_run<V, 32, Nvfp4Lines>, store_mxfp4<V>,
          store_plain_nvfp4_scales,    store_plain_mxfp4_scales};
}

}  // namespace
}  // namespace sluice::cpu
