// AVX-512 without the bf16 instruction: bf16 weights are widened in registers and multiplied in f32.
#include "cpu/isa/gemm_avx512_lanes.h"
#include "cpu/isa/gemm_epilogue.h"

namespace sluice::cpu {
namespace {

constexpr GemmKernels kTable = make_plain_table<Zmm>("avx512");

}  // namespace

const GemmKernels& gemm_avx512() { return kTable; }

}  // namespace sluice::cpu
