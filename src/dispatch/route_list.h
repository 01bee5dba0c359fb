// Which rows a rank sends to which, for the all-to-all: one row for each token and rank, with the slots it is for.
//
// Used by the alltoall dispatcher; no communication. One thread at a time. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "dispatch/row_records.h"
#include "moe/ids.h"
#include "moe/placement.h"

namespace sluice {

// Routes of the tokens at home.
struct Routes {
  const SlotId* slots = nullptr;   // [T, k]
  const float* weights = nullptr;  // [T, k]
  std::int64_t tokens = 0;         // T
  std::int32_t top_k = 0;
};

// Payloads of the tokens at home, written into any record.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  virtual void copy(std::int64_t token, std::byte* to) const = 0;
};

class RouteList {
 public:
  explicit RouteList(const Placement& placement);

  // Rows and routes for each rank. Slots that nobody holds are left out.
  void count(const Routes& routes);
  const std::vector<std::int64_t>& rows() const { return rows_; }      // [ranks]
  const std::vector<std::int64_t>& routes() const { return routes_; }  // [ranks]

  // Of the routes that were counted. The rows for each rank in order of the ranks, and of tokens for each; the slots of
  // a row in order, then kNoSlot. row_of [T, k]: where a route's slot row is among those that come back when every rank
  // answers its rows in order, slot by slot; -1 = it was left out.
  void write(const Routes& routes, const PayloadSource& payloads, const Records& sent, std::int32_t* row_of);

 private:
  std::int32_t rank_of(SlotId slot) const;  // -1 = nobody
  template <class OnRow, class OnRoute>
  void visit(const Routes& routes, OnRow on_row, OnRoute on_route);

  std::vector<std::int32_t> rank_of_slot_;  // [slots]
  std::vector<std::int64_t> rows_, routes_;
  std::vector<std::int64_t> next_row_, next_route_, last_token_;  // [ranks] cursors of write
  std::vector<std::int32_t> listed_;                              // [ranks] slots in the row being written
};

}  // namespace sluice
