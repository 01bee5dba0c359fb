// What the dispatchers share; included by them only.
#pragma once

#include <memory>

#include "dispatch/dispatcher.h"
#include "dispatch/slot_map.h"

namespace sluice::detail {

// Adds to `load` the routes [T, k] that go to the local slots.
void count_rows(const Dispatched& dispatched, SlotLoad* load);

std::unique_ptr<Dispatcher> make_local(const DispatcherOptions& options);
std::unique_ptr<Dispatcher> make_allreduce(const DispatcherOptions& options);

}  // namespace sluice::detail
