#include "engine/outcome.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/scoring.h"

namespace sluice::engine {
namespace {

bool shows_last_logits(const PlanSequence& plan, const Sequence& s) {
  return plan.sample_row >= 0 && s.request.last_logits && s.generated() == 0;
}

void fail_request(Event& event, std::int64_t position) {
  event.finish = FinishReason::error;
  event.error = fmt::format(
      "request {}: logits at position {} are NaN or have no finite value; expected finite logits; `sluice check "
      "--weights` "
      "finds damaged weights",
      static_cast<std::uint64_t>(event.id), position);
}

// Log-probabilities of the prompt tokens that the scored rows predict; the position of a row that has none, or -1.
std::int64_t score(const PlanSequence& plan, Sequence& s, const float* logits, std::int64_t vocab) {
  for (std::int32_t r = 0; r < plan.scores; ++r) {
    const std::int64_t position = s.computed + plan.score_offset + r;
    const std::int32_t next = s.request.prompt[static_cast<std::size_t>(position + 1)];
    const float logprob = log_probability({logits + r * vocab, static_cast<std::size_t>(vocab)}, next);
    if (std::isnan(logprob)) return position;
    s.prompt_logprobs.push_back(logprob);
  }
  return -1;
}

void take_token(Event& event, Sequence& s, std::int32_t token, float logprob) {
  if (s.request.max_new_tokens == 0) {
    event.finish = FinishReason::length;
    return;
  }
  event.token = token;
  event.logprob = logprob;
  s.tokens.push_back(token);
  const std::vector<std::int32_t>& stops = s.request.stop_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    event.finish = FinishReason::stop;
  } else if (s.generated() >= s.request.max_new_tokens) {
    event.finish = FinishReason::length;
  }
}

}  // namespace

std::vector<std::int32_t> wanted_rows(const PlanSequence& plan, const Sequence& sequence) {
  std::vector<std::int32_t> rows;
  rows.reserve(static_cast<std::size_t>(plan.scores) + 1);
  for (std::int32_t r = 0; r < plan.scores; ++r) rows.push_back(plan.first_score + r);
  if (shows_last_logits(plan, sequence)) rows.push_back(plan.sample_row);
  return rows;
}

Event apply(const PlanSequence& plan, Sequence& sequence, const StepResult& result, const float* logits,
            std::int64_t vocab) {
  Event event;
  event.id = sequence.id;
  const std::int64_t damaged = score(plan, sequence, logits, vocab);
  if (damaged >= 0) {
    fail_request(event, damaged);
    return event;
  }
  const bool shows_logits = shows_last_logits(plan, sequence);
  sequence.computed += plan.tokens;
  const bool prompt_read = sequence.generated() == 0 && sequence.pending() == 0;
  if (prompt_read) event.prompt_logprobs = sequence.prompt_logprobs;
  if (plan.sample_row < 0) {
    if (prompt_read) event.finish = FinishReason::length;
    return event;
  }
  if (shows_logits) event.last_logits.assign(logits + plan.scores * vocab, logits + (plan.scores + 1) * vocab);
  const auto row = static_cast<std::size_t>(plan.sample_row);
  if (result.tokens[row] < 0) {
    fail_request(event, sequence.computed - 1);
  } else {
    take_token(event, sequence, result.tokens[row], result.logprobs[row]);
  }
  return event;
}

}  // namespace sluice::engine
