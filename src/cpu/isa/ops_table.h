// The table of a unit, made of the loops above for its vector and its bf16 dot product. Internal linkage.
#pragma once

#include "cpu/isa/ops_attend.h"
#include "cpu/isa/ops_sample.h"

namespace sluice::cpu {
namespace {

template <class DotBf16>
inline constexpr OpsKernels kOpsTable{
    .rms_norm = rms_norm_row,
    .add = add_row,
    .widen = widen_row,
    .narrow = narrow_row,
    .rope_halves = rope_halves_row,
    .rope_pairs = rope_pairs_row,
    .activate = activate_row,
    .attend_bf16 = attend_chunk<DotBf16, std::uint16_t, false>,
    .attend_f32 = attend_chunk<DotF32, float, false>,
    .attend_latent_bf16 = attend_chunk<DotBf16, std::uint16_t, true>,
    .attend_latent_f32 = attend_chunk<DotF32, float, true>,
    .fold = fold_rows,
    .finish = finish_row,
    .max_or_nan = max_or_nan_row,
    .find = find_value,
    .weight_sum = weight_sum_row,
    .weights = weights_row,
    .gather = gather_row,
};

}  // namespace
}  // namespace sluice::cpu
