// AVX-512 with VBMI, which takes any eight bits of a word for each byte: nibbles change places before rows become
// lines, by three instructions, and lines are made as those of wider codes are.
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

constexpr LineKernels kTable = make_line_table<ZmmVbmi>();

}  // namespace

const LineKernels& line_kernels_avx512_vbmi() { return kTable; }

}  // namespace sluice::cpu
