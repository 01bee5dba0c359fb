// NVFP4 and MXFP4 as compressed-tensors stores them: codes in "weight_packed", block scales in "weight_scale", and
// global scales that are reciprocals. Its FP8 weights are those of scheme_fp8.
//
// Entries of app/wiring.cc's list of schemes and of the list of dialects.
#pragma once

#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

Scheme compressed_tensors_scheme();
const Dialect& compressed_tensors_dialect();

}  // namespace sluice::ckpt
