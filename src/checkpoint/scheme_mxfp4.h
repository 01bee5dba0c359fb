// MXFP4 as GPT-OSS stores it (stacked "_blocks" and "_scales", always [outputs, inputs]), and as DeepSeek-V4 does
// (packed codes in "weight", exponents in "scale" or "weight_scale_inv").
//
// Entries of app/wiring.cc's list of schemes and of the list of dialects.
#pragma once

#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

Scheme mxfp4_scheme();
const Dialect& mxfp4_dialect();

}  // namespace sluice::ckpt
