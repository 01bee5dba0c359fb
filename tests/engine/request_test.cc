// Requests that are refused, with the numbers in the message; names of policies and types.
#include "engine/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"

namespace sluice::engine {
namespace {

Request good() {
  Request r;
  r.prompt = {1, 2, 3};
  r.max_new_tokens = 5;
  return r;
}

// The message of the refusal of a changed good request in a vocabulary of 10 and a context of 8.
std::string refusal(const std::function<void(Request&)>& change) {
  Request r = good();
  change(r);
  try {
    validate(r, 10, 8);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Request, AcceptsWhatFits) {
  EXPECT_EQ(refusal([](Request&) {}), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.assign(7, 1); }), "accepted");
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt.assign(8, 1);
              r.max_new_tokens = 0;
            }),
            "accepted");
}

TEST(Request, RefusalsNameTheNumbers) {
  EXPECT_EQ(refusal([](Request& r) { r.prompt.clear(); }), "empty prompt; expected at least one token");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.assign(8, 1); }),
            "prompt of 8 tokens; expected at most 7 of a context of 8 tokens");
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt.assign(9, 1);
              r.max_new_tokens = 0;
            }),
            "prompt of 9 tokens; expected at most 8 of a context of 8 tokens");
  EXPECT_EQ(refusal([](Request& r) { r.prompt[1] = 10; }), "token id 10 at position 1 of the prompt; expected 0 to 9");
  EXPECT_EQ(refusal([](Request& r) { r.prompt[2] = -1; }), "token id -1 at position 2 of the prompt; expected 0 to 9");
  EXPECT_EQ(refusal([](Request& r) { r.max_new_tokens = -1; }), "max_new_tokens -1; expected 0 or more");
}

TEST(Request, RefusesSamplingOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](const std::function<void(Sampling&)>& change) {
    return refusal([&](Request& r) { change(r.sampling); }) != "accepted";
  };
  EXPECT_TRUE(refused([](Sampling& s) { s.temperature = -0.1f; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.temperature = kNan; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.temperature = std::numeric_limits<float>::infinity(); }));
  EXPECT_TRUE(refused([](Sampling& s) { s.top_k = -1; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.top_p = 0.0f; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.top_p = 1.01f; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.top_p = kNan; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.min_p = -0.01f; }));
  EXPECT_TRUE(refused([](Sampling& s) { s.min_p = kNan; }));
  EXPECT_FALSE(refused([](Sampling& s) { s = {1.5f, 40, 0.9f, 0.05f, 7}; }));
}

TEST(Request, RefusesPenaltiesAndBiasOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto sampling = [](const std::function<void(Sampling&)>& change) {
    return refusal([&](Request& r) { change(r.sampling); });
  };
  for (const float bad : {kNan, kInf, -kInf}) {
    EXPECT_NE(sampling([bad](Sampling& s) { s.presence_penalty = bad; }), "accepted") << bad;
    EXPECT_NE(sampling([bad](Sampling& s) { s.frequency_penalty = bad; }), "accepted") << bad;
    EXPECT_NE(sampling([bad](Sampling& s) { s.repetition_penalty = bad; }), "accepted") << bad;
  }
  EXPECT_EQ(sampling([](Sampling& s) { s.repetition_penalty = 0.0f; }),
            "repetition_penalty 0; expected above 0 and finite");
  EXPECT_EQ(sampling([](Sampling& s) {
              s.logit_bias = {{3, 1.0f}, {10, 1.0f}};
            }),
            "logit_bias of token id 10; expected 0 to 9");
  EXPECT_NE(sampling([](Sampling& s) { s.logit_bias = {{-1, 1.0f}}; }), "accepted");
  EXPECT_NE(sampling([](Sampling& s) { s.logit_bias = {{1, kNan}}; }), "accepted");
  EXPECT_NE(sampling([](Sampling& s) { s.logit_bias = {{1, kInf}}; }), "accepted");
  EXPECT_EQ(sampling([](Sampling& s) { s.logit_bias = {{1, -kInf}, {9, 100.0f}}; }), "accepted");
}

TEST(Request, RefusesAnswersOfWhichNoTokenMayBe) {
  const auto ends = [](Request& r) {
    r.min_new_tokens = 2;
    r.eos_ids = {0, 1, 2, 3, 4, 5};
    r.stop_ids = {6, 7, 8, 9, 9, -1, 12};
  };
  EXPECT_EQ(refusal(ends), "min_new_tokens 2 where every token ends the answer; expected 0");
  EXPECT_EQ(refusal([&](Request& r) { ends(r), r.min_new_tokens = 0; }), "accepted");
  EXPECT_EQ(refusal([&](Request& r) { ends(r), r.eos_ids[3] = 4; }), "accepted") << "3 is left";
}

TEST(Request, RefusesCountsOutOfRange) {
  EXPECT_EQ(refusal([](Request& r) { r.min_new_tokens = 6; }), "min_new_tokens 6; expected 0 to max_new_tokens 5");
  EXPECT_NE(refusal([](Request& r) { r.min_new_tokens = -1; }), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.top_logprobs = 129; }), "top_logprobs 129; expected 0 to 128");
  EXPECT_NE(refusal([](Request& r) { r.top_logprobs = -1; }), "accepted");
  EXPECT_NE(refusal([](Request& r) { r.prompt_top_logprobs = 2; }), "accepted") << "without prompt_logprobs";
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt_logprobs = true;
              r.prompt_top_logprobs = 128;
              r.stop_ids = {1 << 30};  // never comes up
            }),
            "accepted");
}

}  // namespace
}  // namespace sluice::engine
