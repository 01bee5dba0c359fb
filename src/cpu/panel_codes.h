// Block scales of a file > those of panels, 16 rows at once, by instructions that every x86-64 processor has.
//
// Called by panel_quant.cc while loading, from many threads. Pure functions on the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/isa/gemm_kernels.h"

namespace sluice::cpu {

inline constexpr std::int64_t kMostRecords = kSegmentK / kStoredK;  // of a segment

// Scales of records that follow each other: one after the other in each row, [groups][16 rows] in a record.
struct ScaleRun {
  std::array<const std::uint8_t*, kPanelRows> rows{};
  std::int64_t records = 0;  // at most kMostRecords
  std::byte* to = nullptr;
  std::int64_t step = 0;  // bytes from record to record
};

// For scales that need no second look, which is almost all. Return false where there are others and then write nothing.
bool store_plain_nvfp4_scales(const ScaleRun& run);  // positive, normal numbers
// Up to 2^125. `far` is set where one is beyond 2^-40 or 2^40.
bool store_plain_mxfp4_scales(const ScaleRun& run, bool& far);

}  // namespace sluice::cpu
