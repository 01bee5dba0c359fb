// The name of a sequence between the loop's thread, which gives it, and the engine's; and what happens to one.
#pragma once

#include <cstdint>

#include "engine/request.h"

namespace sluice::server {

using Ticket = std::uint64_t;

struct TicketEvent {
  Ticket ticket = 0;
  int refusal = 0;  // HTTP status of an engine that did not take the request; event.error says why
  engine::Event event;
  bool aborted = false;  // by the request's id; the engine says nothing about it
};

}  // namespace sluice::server
