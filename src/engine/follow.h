// The life of every rank but rank 0: executes its group's part of each step until rank 0 says stop.
//
// Called by the commands in place of an Engine, on ranks above 0, with the decoder and the options that rank 0 has.
// Takes all its memory first. Throws what goes wrong, on this rank or between ranks; the run is over then.
#pragma once

#include "engine/options.h"
#include "engine/ranks.h"
#include "model/decoder.h"

namespace sluice::engine {

void follow(const model::Decoder& decoder, const EngineOptions& options, const EngineRanks& ranks);

}  // namespace sluice::engine
