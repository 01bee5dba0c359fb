// The reference runner: one expert after the other, one dot product after the other, with every rounding point of the
// recipe written out. All fast runners are compared with it. Row-invariant: the bits of a row depend on nothing else.
//
// Reads the weights where the checkpoint put them (prepare copies nothing), in any layout and format that decode_row
// knows. Immutable: one object serves all layers. A pool only spreads output columns over threads; it must not be in
// use by another caller meanwhile.
#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "moe/runner.h"

namespace sluice {

// `pool` may be nullptr and outlives the runner.
std::unique_ptr<Runner> make_reference_runner(ThreadPool* pool);

}  // namespace sluice
