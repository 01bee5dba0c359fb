// What an engine's options come to for a decoder: sizes that every rank of a run settles alike. Used by Engine and
// follow(). Pure functions.
#pragma once

#include <cstdint>

#include "engine/batch.h"
#include "engine/options.h"
#include "model/decoder.h"

namespace sluice::engine {

// All zeros resolved. Throws Error(usage), naming numbers, for sizes that make no sense or that the decoder was not
// loaded for.
EngineOptions resolve(const model::Decoder& decoder, EngineOptions options);

std::int64_t block_tokens(const model::Decoder& decoder);

struct ExecutorLimits {
  BatchLimits batch;
  std::int64_t context = 0;    // tokens of the longest sequence
  std::int64_t kv_blocks = 0;  // of the whole cache
};
// `options` as resolve() returns them.
ExecutorLimits executor_limits(const model::Decoder& decoder, const EngineOptions& options);

}  // namespace sluice::engine
