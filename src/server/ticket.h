// The name of a sequence between the loop's thread, which gives it, and the engine's.
#pragma once

#include <cstdint>

namespace sluice::server {

using Ticket = std::uint64_t;

}  // namespace sluice::server
