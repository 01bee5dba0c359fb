// Which weights a layout takes, and how it pads them. Called by layout.cc only; constant data and pure functions.
#pragma once

#include <cstdint>

#include "moe/layout/layout.h"

namespace sluice::layout {

struct Rules {
  LayoutKind kind = LayoutKind::cutlass;
  std::string_view name;
  std::int64_t group = 0;     // rows of one half in a run; 0 = one half above the other
  std::int64_t pad_rows = 1;  // each half is padded to a multiple of it
  std::int64_t pad_cols = 1;  // and H
  std::int64_t need_i = 1;    // I must be a multiple of it
  std::int64_t need_h = 1;    // and H
  std::string_view formats;   // for messages
};
const Rules& rules_of(LayoutKind kind);

// Sizes, formats and padding of the result; throws what prepare_layout throws.
PreparedLayout plan_layout(const Rules& rules, const ExpertWeights& weights);

}  // namespace sluice::layout
