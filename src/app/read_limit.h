// How fast this machine can read as many bytes as a token needs: the limit that the end line compares with.
#pragma once

#include <cstdint>

#include "app/wiring.h"
#include "core/thread_pool.h"

namespace sluice::app {

// Gigabytes a second at which all threads of the pool read a buffer of `bytes` again and again; best of several passes.
// A buffer that fits a cache is read from it, as the weights of a small model are. Takes about 0.2 s.
double measure_read_gbps(ThreadPool& pool, cpu::Isa isa, std::int64_t bytes);

// For the weights that one token of the model needs.
double read_limit_gbps(const LoadedModel& model);

}  // namespace sluice::app
