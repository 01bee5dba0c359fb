// Sampling parameters through the engine against a slow decoder made of single requests: logits of the whole text so
// far, changed by hand, and the best token taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "harness.h"

namespace sluice::engine {
namespace {

using testing::Answer;
using testing::mixed_requests;
using testing::run;

using Tokens = std::vector<std::int32_t>;

class EngineSampling : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new sluice::testing::TestDecoder(
        sluice::testing::load_test_decoder(sluice::testing::bundled_model("qwen3_moe")));
  }
  static void TearDownTestSuite() { delete model_; }
  static const model::Decoder& decoder() { return *model_->decoder; }

  static Request prompt() {
    Request r;
    r.prompt = mixed_requests(1024)[1].prompt;
    r.max_new_tokens = 20;
    return r;
  }

  static Answer answer(const Request& r) { return run(decoder(), {512, 4}, {r}).front(); }

  static std::vector<float> logits_after(const Tokens& text) {
    Request r;
    r.prompt = text;
    r.max_new_tokens = 0;
    r.last_logits = true;
    return answer(r).last_logits;
  }

  // Greedy decoding where `change(answer so far, logits)` comes before each choice.
  static Tokens slow_greedy(const Request& r, const std::function<void(const Tokens&, std::vector<float>&)>& change) {
    Tokens text = r.prompt;
    Tokens generated;
    for (std::int64_t i = 0; i < r.max_new_tokens; ++i) {
      std::vector<float> logits = logits_after(text);
      change(generated, logits);
      const auto best = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      text.push_back(best);
      generated.push_back(best);
    }
    return generated;
  }

  static std::vector<TokenLogprob> slow_top(const std::vector<float>& logits, std::size_t count) {
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return at(a) > at(b); });
    double sum = 0;
    for (const std::int32_t id : order) sum += std::exp(at(id) - at(order[0]));
    std::vector<TokenLogprob> top;
    for (std::size_t i = 0; i < count; ++i) {
      top.push_back({order[i], static_cast<float>(at(order[i]) - at(order[0]) - std::log(sum))});
    }
    return top;
  }

  static void expect_near(const std::vector<TokenLogprob>& found, const std::vector<TokenLogprob>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].token, expected[i].token) << i;
      EXPECT_NEAR(found[i].logprob, expected[i].logprob, 1e-5) << i;
    }
  }

  static sluice::testing::TestDecoder* model_;
};
sluice::testing::TestDecoder* EngineSampling::model_ = nullptr;

TEST_F(EngineSampling, PenaltiesEqualTheSlowDecoder) {
  Request r = prompt();
  r.sampling.repetition_penalty = 1.4f;
  r.sampling.frequency_penalty = 0.7f;
  r.sampling.presence_penalty = 0.9f;
  r.sampling.logit_bias = {{40, 3.0f}, {41, -2.0f}, {40, 1.0f}};
  const Tokens expected = slow_greedy(r, [&](const Tokens& generated, std::vector<float>& logits) {
    for (std::int32_t t = 0; t < 1024; ++t) {
      float& x = logits[static_cast<std::size_t>(t)];
      const auto times = static_cast<float>(std::count(generated.begin(), generated.end(), t));
      const bool seen = times > 0 || std::count(r.prompt.begin(), r.prompt.end(), t) > 0;
      if (seen) x = x > 0 ? x / 1.4f : x * 1.4f;
      x -= 0.7f * times + (times > 0 ? 0.9f : 0.0f);
      x += t == 40 ? 4.0f : t == 41 ? -2.0f : 0.0f;
    }
  });
  EXPECT_EQ(answer(r).tokens, expected);
  Request plain = prompt();
  EXPECT_NE(answer(plain).tokens, expected) << "the penalties change nothing here";
}

TEST_F(EngineSampling, TopLogprobsAreThoseOfTheLogits) {
  Request r = prompt();
  r.max_new_tokens = 4;
  r.top_logprobs = 7;
  r.sampling.logit_bias = {{slow_top(logits_after(r.prompt), 1)[0].token, -50.0f}};  // log-probabilities don't see it
  const Answer a = answer(r);
  ASSERT_EQ(a.top.size(), 4u);
  Tokens text = r.prompt;
  for (std::size_t i = 0; i < a.top.size(); ++i) {
    expect_near(a.top[i], slow_top(logits_after(text), 7));
    text.push_back(a.tokens[i]);
  }
  EXPECT_NE(a.tokens[0], a.top[0][0].token);
  EXPECT_EQ(a.logprobs[0], a.top[0][1].logprob);
}

TEST_F(EngineSampling, PromptTopLogprobs) {
  Request r = prompt();
  r.max_new_tokens = 1;
  r.prompt_logprobs = true;
  r.prompt_top_logprobs = 3;
  const Answer a = answer(r);
  ASSERT_EQ(a.prompt_top.size(), r.prompt.size() - 1);
  for (const std::size_t p : {0u, 5u, 15u, 16u, 38u}) {
    const std::vector<float> logits =
        logits_after({r.prompt.begin(), r.prompt.begin() + static_cast<std::ptrdiff_t>(p) + 1});
    expect_near(a.prompt_top[p], slow_top(logits, 3));
    const std::vector<TokenLogprob> all = slow_top(logits, logits.size());
    const auto next = std::find_if(all.begin(), all.end(), [&](const auto& t) { return t.token == r.prompt[p + 1]; });
    EXPECT_NEAR(a.prompt_logprobs[p], next->logprob, 1e-5) << p;
  }
}

TEST_F(EngineSampling, EndTokens) {
  Request r = prompt();
  const Tokens free = answer(r).tokens;
  const std::int32_t third = free[2];
  const std::ptrdiff_t first = std::find(free.begin(), free.end(), third) - free.begin();
  r.eos_ids = {third};
  Answer a = answer(r);
  EXPECT_EQ(a.finish, FinishReason::stop);
  EXPECT_EQ(a.tokens, Tokens(free.begin(), free.begin() + first + 1));
  r.ignore_eos = true;
  a = answer(r);
  EXPECT_EQ(a.finish, FinishReason::length);
  EXPECT_EQ(a.tokens, free);
  r.stop_ids = {third};  // these end it whatever ignore_eos says
  EXPECT_EQ(answer(r).finish, FinishReason::stop);
}

TEST_F(EngineSampling, MinNewTokensBansEndTokens) {
  Request r = prompt();
  r.eos_ids = {answer(r).tokens[0]};
  r.min_new_tokens = 6;
  const Tokens expected = slow_greedy(r, [&](const Tokens& generated, std::vector<float>& logits) {
    if (generated.size() < 6) logits[static_cast<std::size_t>(r.eos_ids[0])] = -INFINITY;
  });
  const Answer a = answer(r);
  const auto end = std::find(expected.begin(), expected.end(), r.eos_ids[0]);
  EXPECT_GE(end - expected.begin(), 6);
  EXPECT_EQ(a.tokens, Tokens(expected.begin(), end == expected.end() ? end : end + 1));
}

TEST_F(EngineSampling, ABannedTokenNeverComes) {
  Request r = prompt();
  r.sampling.temperature = 1.5f;
  r.max_new_tokens = 60;
  for (std::int32_t t = 0; t < 512; ++t) r.sampling.logit_bias.push_back({t, -INFINITY});
  for (const std::int32_t t : answer(r).tokens) EXPECT_GE(t, 512);
}

}  // namespace
}  // namespace sluice::engine
