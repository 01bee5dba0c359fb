// The reference runner on weights that went through a physical layout: prepare brings them into the layout and reads
// them back from its bytes. Bit-equal to the reference runner, or the layout is wrong.
//
// Made by app/wiring.cc and tests. Immutable, like the reference runner.
#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "moe/layout/layout.h"
#include "moe/runner.h"

namespace sluice::layout {

// "reference/cutedsl" and so on. `pool` may be nullptr and outlives the runner.
std::unique_ptr<Runner> make_layout_runner(LayoutKind kind, ThreadPool* pool);

}  // namespace sluice::layout
