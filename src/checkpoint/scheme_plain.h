// The plain scheme: unquantised weights in bf16, fp16 or f32, in every arrangement of ExpertNames.
//
// Entry of app/wiring.cc's list of schemes. A projection becomes strides over the mapped tensor: nothing is copied,
// transposed or reordered here.
#pragma once

#include "checkpoint/scheme.h"

namespace sluice::ckpt {

Scheme plain_scheme();

}  // namespace sluice::ckpt
