#include "moe/permutation.h"

namespace sluice {

std::size_t permutation_bytes(std::int64_t tokens, std::int32_t top_k, std::int32_t local_experts) {
  const auto ints = [](std::int64_t n) { return Workspace::rounded_bytes(static_cast<std::size_t>(n) * 8); };
  return ints(local_experts + std::int64_t{1}) + ints(tokens * top_k);
}

Permutation permute(const SlotId* ids, std::int64_t tokens, std::int32_t top_k, SlotRange slots, Workspace& workspace) {
  const std::int64_t count = tokens * top_k;
  auto* offsets = workspace.take<std::int64_t>(slots.count + std::int64_t{1});
  auto* routes = workspace.take<std::int64_t>(count);
  for (std::int32_t e = 0; e <= slots.count; ++e) offsets[e] = 0;
  for (std::int64_t r = 0; r < count; ++r) {
    if (slots.contains(ids[r])) ++offsets[raw(ids[r]) - slots.first + 1];
  }
  for (std::int32_t e = 0; e < slots.count; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] walks to the end of expert e, which is the begin of e + 1; the shift afterwards puts it back.
  for (std::int64_t r = 0; r < count; ++r) {
    if (slots.contains(ids[r])) routes[offsets[raw(ids[r]) - slots.first]++] = r;
  }
  for (std::int32_t e = slots.count; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  return {offsets, routes, slots.count};
}

}  // namespace sluice
