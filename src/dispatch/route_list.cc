#include "dispatch/route_list.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

// [ranks] where each rank's part begins.
void begin_at(const std::vector<std::int64_t>& counts, std::vector<std::int64_t>& first) {
  std::exclusive_scan(counts.begin(), counts.end(), first.begin(), std::int64_t{0});
}

}  // namespace

RouteList::RouteList(const Placement& placement) {
  for (std::int32_t s = 0; s < placement.slots(); ++s) rank_of_slot_.push_back(placement.rank_of(SlotId{s}));
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  for (auto* list : {&rows_, &routes_, &next_row_, &next_route_, &last_token_}) list->resize(ranks);
  listed_.resize(ranks);
}

std::int32_t RouteList::rank_of(SlotId slot) const {
  const std::int32_t s = raw(slot);
  if (s < 0 || s >= static_cast<std::int32_t>(rank_of_slot_.size())) return -1;
  return rank_of_slot_[static_cast<std::size_t>(s)];
}

// on_row(token, rank) before the first route of a token to a rank, on_route(route, rank) for every route.
template <class OnRow, class OnRoute>
void RouteList::visit(const Routes& routes, OnRow on_row, OnRoute on_route) {
  std::fill(last_token_.begin(), last_token_.end(), -1);
  for (std::int64_t t = 0; t < routes.tokens; ++t) {
    for (std::int64_t r = t * routes.top_k; r < (t + 1) * routes.top_k; ++r) {
      const std::int32_t to = rank_of(routes.slots[r]);
      if (to >= 0 && last_token_[static_cast<std::size_t>(to)] != t) {
        last_token_[static_cast<std::size_t>(to)] = t;
        on_row(t, static_cast<std::size_t>(to));
      }
      on_route(r, to);
    }
  }
}

void RouteList::count(const Routes& routes) {
  std::fill(rows_.begin(), rows_.end(), 0);
  std::fill(routes_.begin(), routes_.end(), 0);
  visit(
      routes, [&](std::int64_t, std::size_t to) { ++rows_[to]; },
      [&](std::int64_t, std::int32_t to) {
        if (to >= 0) ++routes_[static_cast<std::size_t>(to)];
      });
}

void RouteList::write(const Routes& routes, const PayloadSource& payloads, const Records& sent, std::int32_t* row_of) {
  begin_at(rows_, next_row_);
  begin_at(routes_, next_route_);
  const std::int32_t k = routes.top_k;
  const auto begin_row = [&](std::int64_t t, std::size_t to) {
    const std::int64_t row = next_row_[to]++;
    payloads.copy(t, sent.data + row * sent.format.bytes());
    std::fill_n(sent.ids(row), k, kNoSlot);
    std::fill_n(sent.weights(row), k, 0.0f);
    listed_[to] = 0;
  };
  const auto add_route = [&](std::int64_t r, std::int32_t rank) {
    row_of[r] = -1;
    if (rank < 0) return;
    const auto to = static_cast<std::size_t>(rank);
    const std::int64_t row = next_row_[to] - 1;
    sent.ids(row)[listed_[to]] = routes.slots[r];
    sent.weights(row)[listed_[to]] = routes.weights[r];
    ++listed_[to];
    row_of[r] = static_cast<std::int32_t>(next_route_[to]++);
  };
  visit(routes, begin_row, add_route);
}

}  // namespace sluice
