#include "engine/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace sluice::engine {
namespace {

constexpr std::array<std::string_view, 3> kPolicies = {"fcfs", "lpm", "priority"};
constexpr std::array<std::string_view, 4> kForeignPolicies = {"random", "dfs-weight", "lof", "routing-key"};
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

}  // namespace sluice::engine
