// Which bytes of the tensors of a layer's experts a part of them lies in: what a rank reads ahead and counts.
//
// Called by TensorReader. Pure; looks at headers only. Whole rows are counted, since pages are read as a whole: columns
// of down take all bytes of down.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "checkpoint/module_parts.h"
#include "checkpoint/name_map.h"
#include "checkpoint/scheme.h"
#include "core/function_ref.h"

namespace sluice::ckpt {

using VisitBytes = FunctionRef<void(std::span<const std::byte>)>;

// The bytes of one module of the experts, stored under `pattern` of `names`, that the slice holds. A module of one
// expert counts only if the slice holds that expert, which the caller knows.
void visit_slice(const ModuleParts& parts, const ExpertNames& names, std::string_view pattern, const ExpertSlice& slice,
                 VisitBytes visit);

}  // namespace sluice::ckpt
