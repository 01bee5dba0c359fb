// What the dispatchers share; included by them only.
#pragma once

#include <memory>

#include "dispatch/dispatcher.h"
#include "dispatch/route_list.h"
#include "dispatch/row_records.h"
#include "dispatch/slot_map.h"

namespace sluice::detail {

// Adds to `load` the routes [T', k'] that go to the local slots.
void count_rows(const Dispatched& dispatched, SlotLoad* load);

// Tokens that stay where they are, with ids mapped; counts their rows.
Dispatched in_place(const DispatchInput& input, const SlotMap& map, SlotRange slots, SlotLoad* load,
                    Workspace& workspace);

// How rows of this layer travel.
RecordFormat record_format(const DispatcherOptions& options, std::int64_t width, std::int32_t top_k);

// hidden or quantized, as the records have it.
Dispatched dispatched_rows(const Records& records);

// Payloads of tokens [home.begin, home.end) of `hidden`. NVFP4 rows are quantised once, into the workspace.
class Payloads final : public PayloadSource {
 public:
  static std::size_t workspace_bytes(const RecordFormat& format, std::int64_t tokens);
  Payloads(const RecordFormat& format, const ConstTensorView& hidden, const Share& home, Workspace& workspace);
  void copy(std::int64_t token, std::byte* to) const override;

 private:
  const std::byte* data_;
  std::int64_t pitch_bytes_;
  std::size_t bytes_;
};

std::unique_ptr<Dispatcher> make_local(const DispatcherOptions& options);
std::unique_ptr<Dispatcher> make_allreduce(const DispatcherOptions& options);
std::unique_ptr<Dispatcher> make_allgather(const DispatcherOptions& options);
std::unique_ptr<Dispatcher> make_alltoall(const DispatcherOptions& options);

}  // namespace sluice::detail
