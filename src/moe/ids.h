// The three id spaces of experts. Distinct types, so that an id can't be mapped twice or not at all by accident.
// Arrays of them are arrays of int32.
#pragma once

#include <cstdint>

namespace sluice {

enum class LogicalId : std::int32_t {};  // what routing chooses: 0..E-1 of the model
enum class SlotId : std::int32_t {};   // a physical place, after the placement table; several slots may hold one expert
enum class LocalId : std::int32_t {};  // index into the weights of this rank: slot - first local slot

constexpr std::int32_t raw(LogicalId id) { return static_cast<std::int32_t>(id); }
constexpr std::int32_t raw(SlotId id) { return static_cast<std::int32_t>(id); }
constexpr std::int32_t raw(LocalId id) { return static_cast<std::int32_t>(id); }

// Runners skip this id, and every id at or above the number of slots.
inline constexpr SlotId kNoSlot{-1};

// The contiguous slots [first, first + count) whose weights a runner holds.
struct SlotRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
  bool contains(SlotId id) const { return raw(id) >= first && raw(id) - first < count; }
};

}  // namespace sluice
