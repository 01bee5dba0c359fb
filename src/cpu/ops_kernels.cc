#include "cpu/ops_kernels.h"

#include "cpu/features.h"

namespace sluice::cpu {

const OpsKernels& ops_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return ops_kernels_avx2();
    case Isa::avx512:
      return ops_kernels_avx512();
    case Isa::avx512_bf16:
      return ops_kernels_avx512_bf16();
    case Isa::scalar:
      break;
  }
  return ops_kernels_scalar();
}

}  // namespace sluice::cpu
