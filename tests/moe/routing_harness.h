// Routes rows given as plain lists. For tests only.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/routing.h"

namespace sluice::testing {

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// `logits` holds whole rows of spec.experts.
inline Routed route_all(const RoutingSpec& spec, const std::vector<float>& logits,
                        const std::vector<std::int32_t>& token_ids = {}, std::int64_t valid_tokens = -1) {
  const auto rows = static_cast<std::int64_t>(logits.size()) / spec.experts;
  const auto count = static_cast<std::size_t>(rows * spec.slots());
  std::vector<LogicalId> ids(count, LogicalId{-77});
  Routed out{{}, std::vector<float>(count, -77.0f)};
  validate(spec);
  const RouteInput input{dense_view(logits.data(), DType::f32, rows, spec.experts),
                         token_ids.empty() ? nullptr : token_ids.data(), valid_tokens};
  route_rows(spec, input, {ids.data(), out.weights.data()}, 0, rows);
  for (const LogicalId id : ids) out.ids.push_back(raw(id));
  return out;
}

}  // namespace sluice::testing
