// The WeightSource of all schemes: roles and experts of a checkpoint, each weight in whatever dialect it is stored.
//
// Used by the scheme_*.cc. What a weight is, is decided weight by weight, so a checkpoint may mix formats; a scheme
// only says who the checkpoint is from.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/quant_config.h"
#include "checkpoint/scheme.h"
#include "checkpoint/weight_reader.h"

namespace sluice::ckpt {

std::unique_ptr<WeightSource> open_source(const Checkpoint& checkpoint, NameMap names, const SchemeOptions& options);

// Why a quantised scheme does not read the checkpoint: it is described as another one's, or, without a description, has
// no weight in this spelling. Empty when it does.
std::string refusal_of(const Checkpoint& checkpoint, QuantMethod method, const Dialect& dialect);

// Whether a tensor holds codes. Integers do only where the name says so: checkpoints also hold tables and masks.
bool is_quantised(const TensorEntry& tensor);

}  // namespace sluice::ckpt
