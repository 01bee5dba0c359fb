// The headers build on each other in this order.
// clang-format off
#include "cpu/isa/ops_vec_avx512.h"
#include "cpu/isa/ops_math.h"
#include "cpu/isa/ops_rows.h"
#include "cpu/isa/ops_dot.h"
#include "cpu/isa/ops_table.h"
// clang-format on

namespace sluice::cpu {

const OpsKernels& ops_kernels_avx512() { return kOpsTable<DotBf16Split>; }

}  // namespace sluice::cpu
