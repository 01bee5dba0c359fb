// Runs requests through an engine and keeps what came of them. Shared by the engine's tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/test_decoder.h"

namespace sluice::engine::testing {

// What came of a request.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  std::vector<float> last_logits;
  std::vector<std::vector<TokenLogprob>> top;         // with each token
  std::vector<std::vector<TokenLogprob>> prompt_top;  // with each prompt token after the first
  FinishReason finish = FinishReason::none;
  std::string error;
  bool operator==(const Answer&) const = default;
};

// What a failed comparison shows, instead of bytes.
inline void PrintTo(const Answer& a, std::ostream* out) {
  *out << finish_name(a.finish) << " tokens " << ::testing::PrintToString(a.tokens) << " first log-probability "
       << (a.logprobs.empty() ? 0.0f : a.logprobs.front());
}

inline void collect(const std::vector<Event>& events, std::map<RequestId, Answer>& answers) {
  for (const Event& e : events) {
    Answer& a = answers[e.id];
    ASSERT_EQ(a.finish, FinishReason::none) << "an event after the last one";
    if (e.token >= 0) {
      a.tokens.push_back(e.token);
      a.logprobs.push_back(e.logprob);
      a.top.push_back(e.top);
    }
    if (!e.prompt_logprobs.empty()) a.prompt_logprobs = e.prompt_logprobs;
    if (!e.prompt_top.empty()) a.prompt_top = e.prompt_top;
    if (!e.last_logits.empty()) a.last_logits = e.last_logits;
    a.finish = e.finish;
    a.error = e.error;
  }
}

// All requests at once; answers in the order of the requests.
inline std::vector<Answer> run(Engine& engine, const std::vector<Request>& requests) {
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(engine.submit(r));
  std::map<RequestId, Answer> answers;
  for (int steps = 0; !engine.idle() && steps < 5000; ++steps) collect(engine.step(), answers);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.stats().kv_blocks_used, 0);
  std::vector<Answer> in_order;
  for (const RequestId id : ids) in_order.push_back(answers[id]);
  return in_order;
}

inline std::vector<Answer> run(const model::Decoder& decoder, const EngineOptions& options,
                               const std::vector<Request>& requests) {
  Engine engine(decoder, options);
  return run(engine, requests);
}

// Requests of unequal lengths, sampled and greedy, some with all outputs.
inline std::vector<Request> mixed_requests(std::int64_t vocab) {
  std::vector<Request> requests;
  const std::size_t lengths[] = {1, 40, 7, 90, 16, 17, 33};
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    Request& r = requests.emplace_back();
    for (std::size_t k = 0; k < lengths[i]; ++k) {
      r.prompt.push_back(
          static_cast<std::int32_t>((k * k * 31 + k * 7 + i * 101 + 3) % static_cast<std::size_t>(vocab)));
    }
    r.max_new_tokens = 5 + static_cast<std::int64_t>(i) * 3;
    if (i % 2 == 1) r.sampling = {0.9f, 50, 0.95f, 0.01f, 1000 + i};
    r.prompt_logprobs = i % 3 == 0;
    r.prompt_top_logprobs = r.prompt_logprobs ? 2 : 0;
    r.last_logits = i % 3 == 1;
    r.top_logprobs = static_cast<std::int32_t>(i % 4);
    if (i < 4) continue;
    r.sampling.repetition_penalty = 1.3f;
    r.sampling.presence_penalty = 0.5f;
    r.sampling.frequency_penalty = 0.25f;
    r.sampling.logit_bias = {{static_cast<std::int32_t>(i), 2.0f}};
  }
  return requests;
}

}  // namespace sluice::engine::testing
