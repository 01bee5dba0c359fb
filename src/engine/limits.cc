#include "engine/limits.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "core/rounding.h"

namespace sluice::engine {
namespace {

// Far beyond every use, and small enough that products of sizes fit in 63 bits.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 20;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 36;

void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::usage, fmt::format("{} {}", what, value), fmt::format("{} to {}", least, most));
}

}  // namespace

EngineOptions resolve(const model::Decoder& decoder, EngineOptions o) {
  if (o.context_length <= 0) o.context_length = decoder.max_positions();
  if (o.context_length > decoder.max_positions()) {
    fail(ErrorCode::usage, fmt::format("context of {} tokens", o.context_length),
         fmt::format("at most the {} positions that the model was loaded for", decoder.max_positions()));
  }
  if (o.kv_tokens <= 0) o.kv_tokens = o.context_length;
  if (o.max_batch_tokens <= 0) o.max_batch_tokens = o.context_length;
  check_range("context length", o.context_length, 2, kMostTokens);  // a prompt token and its answer
  check_range("KV cache tokens", o.kv_tokens, 1, kMostTokens);
  check_range("running requests", o.max_sequences, 1, kMostSequences);
  check_range("tokens of a step", o.max_batch_tokens, 1, kMostSequences * 16);
  check_range("rows of logits", o.max_logit_rows, 0, kMostSequences);
  o.max_batch_tokens = std::max(o.max_batch_tokens, o.max_sequences);
  o.max_logit_rows = std::max(o.max_logit_rows, o.max_sequences);
  return o;
}

std::int64_t block_tokens(const model::Decoder& decoder) { return decoder.kv_specs().front().block_tokens; }

ExecutorLimits executor_limits(const model::Decoder& decoder, const EngineOptions& o) {
  const std::int64_t block = block_tokens(decoder);
  return {{o.max_batch_tokens, o.max_sequences, ceil_div(o.context_length, block), o.max_logit_rows},
          o.context_length,
          ceil_div(o.kv_tokens, block)};
}

}  // namespace sluice::engine
