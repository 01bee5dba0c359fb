// Codes and block scales of a file > a record of a panel, 16 rows at once: the part of packing that every byte goes
// through, by instructions that every x86-64 processor has.
//
// Called by panel_quant.cc while loading, from many threads. Pure functions on the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/isa/gemm_kernels.h"

namespace sluice::cpu {

// Where the records put kStoredK columns of a panel.
struct RecordTarget {
  std::byte* scales;
  std::byte* codes;
  std::int64_t pitch;  // bytes from a line of the panel to its next
};

using CodeRows = std::array<const std::byte*, kPanelRows>;  // kStoredK codes of each row

void store_fp8_codes(const CodeRows& rows, const RecordTarget& to);
void store_nvfp4_codes(const CodeRows& rows, const RecordTarget& to);
// Returns whether a block of 32 codes has zeros only.
bool store_mxfp4_codes(const CodeRows& rows, const RecordTarget& to);

using ScaleRows = std::array<const std::uint8_t*, kPanelRows>;  // scales of kStoredK columns, one after the other

// Scales that need no second look, which is almost all. Returns false where there are others and then writes nothing.
bool store_plain_nvfp4_scales(const ScaleRows& rows, const RecordTarget& to);  // positive, normal numbers
bool store_plain_mxfp4_scales(const ScaleRows& rows, const RecordTarget& to);  // up to 2^125

}  // namespace sluice::cpu
