// NVFP4 as ModelOpt stores it: codes in "weight", block scales in "weight_scale", and multipliers "weight_scale_2" and
// "input_scale". Its FP8 weights are those of scheme_fp8.
//
// Entries of app/wiring.cc's list of schemes and of the list of dialects.
#pragma once

#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

Scheme modelopt_scheme();
const Dialect& modelopt_dialect();

}  // namespace sluice::ckpt
