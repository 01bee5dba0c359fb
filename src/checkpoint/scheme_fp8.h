// 8-bit float weights with a scale a tensor, an output channel or a 128 x 128 block, as DeepSeek, ModelOpt and
// compressed-tensors all store them; the scales are multipliers, "weight_scale_inv" too.
//
// Entries of app/wiring.cc's list of schemes and of the list of dialects.
#pragma once

#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

Scheme fp8_scheme();
const Dialect& fp8_dialect();

}  // namespace sluice::ckpt
