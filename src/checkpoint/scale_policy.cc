#include "checkpoint/scale_policy.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "core/error.h"

namespace sluice::ckpt {
namespace {

struct Repair {
  std::string_view name;
  bool ScalePolicy::*flag;
};

constexpr Repair kRepairs[] = {
    {"fill-missing", &ScalePolicy::fill_missing},
    {"fill-invalid", &ScalePolicy::fill_invalid},
    {"clamp-denormal", &ScalePolicy::clamp_denormal},
    {"weight-only", &ScalePolicy::weight_only},
};

void set_repair(ScalePolicy& policy, std::string_view name) {
  for (const Repair& repair : kRepairs) {
    if (repair.name != name) continue;
    policy.*repair.flag = true;
    return;
  }
  fail(ErrorCode::usage, "scale policy \"" + std::string(name) + "\"",
       "strict, or some of fill-missing, fill-invalid, clamp-denormal and weight-only, separated by commas");
}

}  // namespace

ScalePolicy ScalePolicy::parse(std::string_view text) {
  ScalePolicy policy;
  if (text == "strict") return policy;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    set_repair(policy, text.substr(begin, end - begin));
    begin = end + 1;
  }
  return policy;
}

ScaleFault fault_of(float scale) {
  switch (std::fpclassify(scale)) {
    case FP_NAN:
      return ScaleFault::nan;
    case FP_INFINITE:
      return ScaleFault::infinite;
    case FP_ZERO:
      return ScaleFault::zero;
    case FP_SUBNORMAL:
      return scale < 0 ? ScaleFault::negative : ScaleFault::denormal;
    default:
      return scale < 0 ? ScaleFault::negative : ScaleFault::none;
  }
}

std::string_view fault_name(ScaleFault fault) {
  constexpr std::string_view kNames[] = {"", "NaN", "infinite", "zero", "negative", "denormal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ScaleFault::denormal) + 1);
  return kNames[static_cast<std::size_t>(fault)];
}

}  // namespace sluice::ckpt
