// A model over ranks in one process: each rank a thread with a decoder of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/test_decoder.h"

namespace sluice::testing {

// Calls `run` for every rank with its decoder, in threads. A rank that throws ends the others; the first error comes
// out.
void run_ranks(const std::string& folder, const ParallelSizes& sizes, const TestDecoderOptions& options,
               const std::function<void(const RankPlan&, const TestDecoder&)>& run);

// Logits of every position of a prompt that all ranks compute, one list a rank.
std::vector<std::vector<float>> rank_logits(const std::string& folder, const ParallelSizes& sizes,
                                            const TestDecoderOptions& options, const std::vector<std::int32_t>& prompt,
                                            std::int64_t chunk);

// "tp 4, ep 2"
std::string sizes_text(const ParallelSizes& sizes);

}  // namespace sluice::testing
