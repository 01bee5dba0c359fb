// Row-wise operations of the CPU backend: checks of the arguments, and the split among threads.
//
// Called by CpuBackend. Throw Error(usage) when types or shapes do not fit. Small batches stay on the calling thread.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"
#include "moe/spec.h"

namespace sluice::cpu {

// Rows that one task takes, so that it lasts some microseconds.
std::int64_t rows_per_task(std::int64_t cols);

void norm_rows(const NormArgs& args, const OpsKernels& kernels, ThreadPool& pool);
void add_rows(const TensorView& into, const ConstTensorView& x, const OpsKernels& kernels, ThreadPool& pool);
// into[t] += sigmoid(gate[t]) * x[t], product and sum rounded to f32 each.
void add_gated_rows(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, ThreadPool& pool);
// Kinds without a vector loop go through the reference function, element by element.
void activate_rows(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                   const TensorView& out, const OpsKernels& kernels, ThreadPool& pool);
// Row i of out = row rows[i] of x; same type.
void copy_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, ThreadPool& pool);

}  // namespace sluice::cpu
