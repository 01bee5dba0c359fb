// What ranks of a run settle together before they load: who shares a machine, and what must be the same everywhere.
//
// Called by open_model and load_model on every rank at the same place. Errors are those of the group.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/group.h"
#include "cpu/features.h"

namespace sluice::app {

// How many ranks, this one among them, take their memory and their processors from the same place: those of one host,
// and of them the ones that may run on the same processors.
struct Sharing {
  std::int32_t memory = 1;
  std::int32_t processors = 1;
};
Sharing find_sharing(Group& world);

// The widest instruction set that no rank is without, whose own is `mine`: ranks that route the same tokens must find
// the same bits. `note` says which ranks were far apart; empty when all have the same.
struct CommonIsa {
  cpu::Isa isa = cpu::Isa::scalar;
  std::string note;
};
CommonIsa common_isa(Group& world, cpu::Isa mine);

// The least value that any rank names.
std::int64_t least_of(Group& world, std::int64_t value);

// Of names, types, shapes and places of all tensors: equal for copies of a checkpoint, whatever their folder.
std::string header_digest(const ckpt::Checkpoint& checkpoint);

}  // namespace sluice::app
