#include "cpu/isa/line_kernels.h"

#include <emmintrin.h>

#include "cpu/features.h"

namespace sluice::cpu {

const LineKernels& line_kernels(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return line_kernels_scalar();
    case Isa::avx2:
      return line_kernels_avx2();
    case Isa::avx512:
      return line_kernels_avx512();
    case Isa::avx512_bf16:
      break;
  }
  return line_kernels_avx512_vbmi();
}

void finish_lines() { _mm_sfence(); }

}  // namespace sluice::cpu
