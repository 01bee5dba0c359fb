// Canonical weights out of the bytes of a prepared layout, one element after the other through the layout's address
// formulas. These are written on their own, not as the inverse of the writer, so that a fault in either shows.
//
// Called by layout_runner.cc and tests. Slow. The result owns a copy (keep_alive); the layout is not needed any more.
#pragma once

#include "moe/layout/layout.h"

namespace sluice::layout {

ExpertWeights read_layout(const PreparedLayout& layout);

}  // namespace sluice::layout
