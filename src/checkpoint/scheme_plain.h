// Unquantised weights in bf16, fp16 or f32, in every arrangement of ExpertNames. A projection becomes strides over the
// mapped tensor: nothing is copied, transposed or reordered here.
//
// Entries of app/wiring.cc's list of schemes and of the list of dialects.
#pragma once

#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

Scheme plain_scheme();
const Dialect& plain_dialect();

}  // namespace sluice::ckpt
