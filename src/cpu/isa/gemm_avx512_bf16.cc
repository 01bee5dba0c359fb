// AVX-512 with vdpbf16ps and VBMI, whose look-ups decode 8-bit and 4-bit weights.
#include "cpu/isa/gemm_epilogue.h"
#include "cpu/isa/gemm_fused.h"

namespace sluice::cpu {
namespace {

constexpr GemmKernels make_fused_table() {
  GemmKernels table = make_table<Zmm, Bf16Dot>("avx512-bf16", Element::bf16);
  use_decoder<Fp8Decoder>(table);
  use_decoder<Nvfp4Decoder>(table);
  use_nvfp4_units(table.fused[static_cast<int>(Format::nvfp4)]);
  use_decoder<Mxfp4Decoder>(table);
  fill_fused<Fp8Decoder, true>(table.fused_scaled);
  fill_fused_near(table.fused_near);
  return table;
}

constexpr GemmKernels kTable = make_fused_table();

}  // namespace

const GemmKernels& gemm_avx512_bf16() { return kTable; }

}  // namespace sluice::cpu
