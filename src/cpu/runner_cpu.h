// The `cpu` runner: experts of every recipe but f32 on the processor's own threads.
//
// Made once by the wiring; one object serves all layers. It computes on the pool it was given, which must not be in use
// by another caller meanwhile. Row-invariant and repeatable for any number of threads (architecture 4.5): bits depend
// on the instruction set only.
#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "cpu/features.h"
#include "moe/runner.h"

namespace sluice::cpu {

// `pool` outlives the runner; `isa` is one that supports() confirms.
std::unique_ptr<Runner> make_cpu_runner(ThreadPool& pool, Isa isa);

}  // namespace sluice::cpu
