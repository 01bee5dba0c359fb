// The routed experts of a layer in an export: names, shapes and work. Called by export_plan.cc. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/export_plan.h"
#include "moe/spec.h"

namespace sluice::ckpt {

// Declares the tensors of a matrix in `item` and notes them in `job`.
void declare_module(ExportItem& item, MatrixJob& job, const ExportTarget& target);

// One item an expert, or one for all where the dialect stacks them. Throws Error(unsupported) when the family has no
// names of the kind that the dialect wants.
std::vector<ExportItem> plan_layer_experts(const NameMap& names, const ExportTarget& target, std::int64_t layer,
                                           const LayerSpec& spec);

}  // namespace sluice::ckpt
