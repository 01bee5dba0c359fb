// AVX-512 without instructions that pick bits.
#include "cpu/isa/lines_zmm.h"

namespace sluice::cpu {
namespace {

constexpr LineKernels kTable = make_line_table<Zmm>();

}  // namespace

const LineKernels& line_kernels_avx512() { return kTable; }

}  // namespace sluice::cpu
