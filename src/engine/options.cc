#include "engine/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace sluice::engine {
namespace {

constexpr std::array<std::string_view, 3> kPolicies = {"fcfs", "lpm", "priority"};
constexpr std::array<std::string_view, 4> kForeignPolicies = {"random", "dfs-weight", "lof", "routing-key"};
constexpr std::array<std::string_view, 8> kForeignKvTypes = {"fp8_e4m3", "fp8_e5m2", "fp8",      "float16",
                                                             "fp16",     "half",     "fp4_e2m1", "int8"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

SchedulePolicy parse_schedule_policy(std::string_view name) {
  const auto it = std::find(kPolicies.begin(), kPolicies.end(), name);
  if (it != kPolicies.end()) return static_cast<SchedulePolicy>(it - kPolicies.begin());
  fail(contains(kForeignPolicies, name) ? ErrorCode::unsupported : ErrorCode::usage,
       fmt::format("schedule policy {}", name), "fcfs, lpm or priority");
}

std::string_view schedule_policy_name(SchedulePolicy policy) { return kPolicies[static_cast<std::size_t>(policy)]; }

void check_kv_cache_dtype(std::string_view name, DType compute) {
  const bool is_bf16 = name == "bf16" || name == "bfloat16";
  const bool is_f32 = name == "float32";
  if (name == "auto" || (is_bf16 && compute == DType::bf16) || (is_f32 && compute == DType::f32)) return;
  const bool known = is_bf16 || is_f32 || contains(kForeignKvTypes, name);
  fail(known ? ErrorCode::unsupported : ErrorCode::usage, fmt::format("KV cache of type {}", name),
       fmt::format("auto or {}", compute == DType::f32 ? "float32" : "bf16"),
       "the KV cache has the compute type; quantised ones are not built");
}

}  // namespace sluice::engine
