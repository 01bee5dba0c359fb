#include "engine/outcome.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::engine {
namespace {

void fail_request(Event& event, std::int64_t position) {
  event.finish = FinishReason::error;
  event.error = fmt::format(
      "request {}: logits at position {} are NaN or have no finite value; expected finite logits; `sluice check "
      "--weights` "
      "finds damaged weights",
      static_cast<std::uint64_t>(event.id), position);
}

// Log-probabilities of the prompt tokens that the scored rows predict; the position of a row that has none, or -1.
std::int64_t score(const PlanSequence& plan, Sequence& s, const StepResult& result) {
  for (std::int32_t r = 0; r < plan.scores; ++r) {
    const std::int64_t row = plan.first_score + r;
    if (result.tokens[static_cast<std::size_t>(row)] < 0) return s.computed + plan.score_offset + r;
    s.prompt_logprobs.push_back(result.logprobs[static_cast<std::size_t>(row)]);
    if (s.request.prompt_top_logprobs > 0) s.prompt_top.push_back(result.top(row));
  }
  return -1;
}

bool ends(const Request& request, std::int32_t token) {
  const auto has = [token](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return has(request.stop_ids) || (!request.ignore_eos && has(request.eos_ids));
}

void take_token(Event& event, Sequence& s, const StepResult& result, std::int32_t row) {
  if (s.request.max_new_tokens == 0) {
    event.finish = FinishReason::length;
    return;
  }
  event.token = result.tokens[static_cast<std::size_t>(row)];
  event.logprob = result.logprobs[static_cast<std::size_t>(row)];
  if (s.request.top_logprobs > 0) event.top = result.top(row);
  s.tokens.push_back(event.token);
  s.penalties.add_generated(event.token);
  if (ends(s.request, event.token)) {
    event.finish = FinishReason::stop;
  } else if (s.generated() >= s.request.max_new_tokens) {
    event.finish = FinishReason::length;
  }
}

// With the first event: what was asked about the prompt.
void show_prompt(Event& event, Sequence& s) {
  event.prompt_logprobs = s.prompt_logprobs;
  event.prompt_top = std::move(s.prompt_top);
  s.timing.first_token = Timing::Time::clock::now();
}

}  // namespace

void set_params(const PlanSequence& plan, const Sequence& sequence, std::vector<SampleParams>& params) {
  const Request& request = sequence.request;
  if (plan.sample_row >= 0) {
    const Sampling& p = request.sampling;
    const std::span<const LogitEdit> edits = sequence.penalties.edits();
    params[static_cast<std::size_t>(plan.sample_row)] = {
        .temperature = p.temperature,
        .top_k = p.top_k,
        .top_p = p.top_p,
        .min_p = p.min_p,
        .seed = p.seed,
        .step = static_cast<std::uint64_t>(sequence.generated()),
        .edits = edits.data(),
        .edit_count = std::ssize(edits),
        .top = request.top_logprobs,
    };
  }
  for (std::int32_t r = 0; r < plan.scores; ++r) {
    const std::int64_t next = sequence.computed + plan.score_offset + r + 1;
    SampleParams& p = params[static_cast<std::size_t>(plan.first_score) + static_cast<std::size_t>(r)];
    p.given = request.prompt[static_cast<std::size_t>(next)];
    p.top = request.prompt_top_logprobs;
  }
}

bool shows_logits(const PlanSequence& plan, const Sequence& sequence) {
  return plan.sample_row >= 0 && sequence.request.last_logits && sequence.generated() == 0;
}

Event apply(const PlanSequence& plan, Sequence& sequence, const StepResult& result, std::span<const float> logits) {
  Event event;
  event.id = sequence.id;
  const std::int64_t damaged = score(plan, sequence, result);
  if (damaged >= 0) {
    fail_request(event, damaged);
    return event;
  }
  if (shows_logits(plan, sequence)) event.last_logits.assign(logits.begin(), logits.end());
  sequence.computed += plan.tokens;
  const bool prompt_read = sequence.generated() == 0 && sequence.pending() == 0;
  if (prompt_read) show_prompt(event, sequence);
  if (plan.sample_row < 0) {
    if (prompt_read) event.finish = FinishReason::length;
    return event;
  }
  if (result.tokens[static_cast<std::size_t>(plan.sample_row)] < 0) {
    fail_request(event, sequence.computed - 1);
  } else {
    take_token(event, sequence, result, plan.sample_row);
  }
  return event;
}

}  // namespace sluice::engine
