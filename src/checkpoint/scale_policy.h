// What loading does with scales that no quantiser should have written. Strict by default; every repair is named by the
// user and announced (`--scale-policy`).
//
// Used by the readers of quantised weights. Plain data and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::ckpt {

// Without a repair, a scale that is missing, NaN, infinite, zero, negative or denormal is an error that names tensor
// and expert.
struct ScalePolicy {
  // A missing input scale of an expert becomes the largest of its layer: what calibration never saw is quantised in the
  // coarsest way of its neighbours.
  bool fill_missing = false;
  // An input scale that is NaN, infinite, zero or negative counts as missing, and is filled likewise.
  bool fill_invalid = false;
  // A denormal scale becomes the smallest normal number, 2^-126.
  bool clamp_denormal = false;
  // Input scales are ignored and activations stay unquantised or are quantised per token, as in a weight-only file.
  bool weight_only = false;

  // "strict", or repairs separated by commas: fill-missing, fill-invalid, clamp-denormal, weight-only.
  // Throws Error(usage).
  static ScalePolicy parse(std::string_view text);
};

enum class ScaleFault : std::uint8_t { none, nan, infinite, zero, negative, denormal };
ScaleFault fault_of(float scale);
// "NaN", "infinite", ...; "" for none.
std::string_view fault_name(ScaleFault fault);

}  // namespace sluice::ckpt
