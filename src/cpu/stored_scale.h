// What a block scale of a 4-bit format becomes in a panel, code by code.
//
// Called by panel_fp4.cc while loading, from many threads; immutable tables.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/isa/gemm_kernels.h"

namespace sluice::cpu {

inline constexpr std::uint8_t kMxfp4One = 127;  // stored byte of the scale 1

// Its byte in the panel, and masks that are applied to the codes.
struct StoredScale {
  std::uint8_t byte = 0;
  std::uint32_t keep = 0xFFFFFFFFu;  // 0: the scale is zero or NaN, so the codes are dropped
  std::uint32_t flip = 0;            // sign bits of a negative scale
  bool nan = false;

  bool changes_codes() const { return keep == 0 || flip != 0; }
};

using ScaleTable = std::array<StoredScale, 256>;

// Of nvfp4 or mxfp4. MXFP4 codes from 253 on have no stored byte: check_mxfp4_scale() refuses them where they occur.
const ScaleTable& scale_table(Format format);
void check_mxfp4_scale(std::uint8_t code);

}  // namespace sluice::cpu
