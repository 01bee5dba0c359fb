// Answers from a warm prefix cache have the bits of a cold one, in every family, with chunks and preemption; what the
// cache saves is counted.
#include <gtest/gtest.h>

#include "harness.h"
#include "model/toy_model.h"

namespace sluice::engine {
namespace {

using testing::Answer;
using testing::mixed_requests;
using testing::run;

// Requests that begin alike at every distance from a block's border, some sampled, some with scores.
std::vector<Request> family_of_prompts(std::int64_t vocab) {
  std::vector<Request> requests;
  std::vector<Request> mixed = mixed_requests(vocab);
  const std::vector<std::int32_t> base = mixed[3].prompt;  // 90 tokens
  for (const std::size_t common : {90u, 64u, 63u, 65u, 48u, 90u, 17u, 80u}) {
    Request r = mixed[requests.size() % mixed.size()];
    r.prompt.assign(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(common));
    if (requests.size() % 3 == 1) r.prompt.push_back(7);
    r.max_new_tokens = 30;
    requests.push_back(std::move(r));
  }
  return requests;
}

EngineOptions without_cache(EngineOptions o) {
  o.prefix_cache = false;
  return o;
}

void expect_warm_equals_cold(const model::Decoder& decoder) {
  const std::vector<Request> requests = family_of_prompts(decoder.config().vocab);
  std::vector<Answer> cold;
  for (const Request& r : requests) cold.push_back(run(decoder, without_cache({512, 1, 0, 0, 512}), {r}).front());
  for (const EngineOptions& options :
       {EngineOptions{512, 16, 0, 4096}, EngineOptions{33, 3, 0, 4096, 5}, EngineOptions{64, 8, 0, 144}}) {
    Engine engine(decoder, options);
    for (int round = 0; round < 2; ++round) EXPECT_EQ(run(engine, requests), cold) << "round " << round;
    EXPECT_GT(engine.stats().prefix_hit_tokens, 200);
    if (options.kv_tokens == 144) {
      EXPECT_GT(engine.stats().preemptions, 0);
    }
  }
}

TEST(EnginePrefix, ToyModelWarmEqualsCold) {
  const sluice::testing::ToyModel toy;
  expect_warm_equals_cold(*sluice::testing::load_test_decoder(toy.folder()).decoder);
}

class EnginePrefixBundled : public ::testing::TestWithParam<const char*> {};

// deepseek_v3: latent attention has one form for prompts and single tokens, so it holds there too. gpt_oss: sliding
// windows and sinks.
TEST_P(EnginePrefixBundled, WarmEqualsCold) {
  const auto t = sluice::testing::load_test_decoder(sluice::testing::bundled_model(GetParam()));
  expect_warm_equals_cold(*t.decoder);
}

INSTANTIATE_TEST_SUITE_P(Models, EnginePrefixBundled, ::testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss"));

class EnginePrefixCounts : public ::testing::Test {
 protected:
  sluice::testing::TestDecoder model_ = sluice::testing::load_test_decoder(sluice::testing::bundled_model("qwen3_moe"));

  // Runs one request and gives back its last event.
  static Event last_event(Engine& engine, const Request& r) {
    engine.submit(r);
    Event last;
    while (!engine.idle()) {
      for (Event& e : engine.step()) last = std::move(e);
    }
    return last;
  }
};

TEST_F(EnginePrefixCounts, CachedTokensAndComputedTokens) {
  Engine engine(*model_.decoder, {512, 4});
  Request r = mixed_requests(1024)[3];
  r.prompt_logprobs = false;
  r.prompt_top_logprobs = 0;
  r.max_new_tokens = 1;
  EXPECT_EQ(last_event(engine, r).cached_tokens, 0);
  EXPECT_EQ(engine.stats().prefill_tokens, 90);
  EXPECT_EQ(last_event(engine, r).cached_tokens, 80);
  EXPECT_EQ(engine.stats().prefill_tokens, 100);
  EXPECT_EQ(engine.stats().prompt_tokens, 180);
  EXPECT_EQ(engine.stats().prefix_hit_tokens, 80);
  EXPECT_EQ(engine.stats().kv_blocks_cached, 5);
  r.cache_salt = 1;
  EXPECT_EQ(last_event(engine, r).cached_tokens, 0);
  engine.clear_prefix_cache();
  EXPECT_EQ(engine.stats().kv_blocks_cached, 0);
  EXPECT_EQ(last_event(engine, r).cached_tokens, 0);
}

TEST_F(EnginePrefixCounts, NothingIsKeptWithoutTheCache) {
  Engine engine(*model_.decoder, without_cache({512, 4}));
  Request r = mixed_requests(1024)[3];
  r.prompt_logprobs = false;
  r.prompt_top_logprobs = 0;
  EXPECT_EQ(last_event(engine, r).cached_tokens, 0);
  EXPECT_EQ(last_event(engine, r).cached_tokens, 0);
  EXPECT_EQ(engine.stats().kv_blocks_cached, 0);
}

// Cancelled while others use its blocks: they go on undisturbed.
TEST_F(EnginePrefixCounts, CancelLeavesSharedBlocksToOthers) {
  const std::vector<Request> requests = family_of_prompts(1024);
  std::vector<Answer> cold;
  for (const Request& r : requests) cold.push_back(run(*model_.decoder, without_cache({512, 1}), {r}).front());
  Engine engine(*model_.decoder, {40, 8});
  std::vector<RequestId> ids;
  std::map<RequestId, Answer> answers;
  for (const Request& r : requests) ids.push_back(engine.submit(r));
  for (int i = 0; !engine.idle(); ++i) {
    testing::collect(engine.step(), answers);
    if (i == 4) engine.cancel(ids[0]);
    if (i == 8) engine.cancel(ids[2]);
  }
  for (const std::size_t i : {1u, 3u, 4u, 5u, 6u, 7u}) EXPECT_EQ(answers[ids[i]], cold[i]) << i;
  EXPECT_EQ(engine.stats().cancelled, 2);
  EXPECT_EQ(engine.stats().kv_blocks_used, 0);
}

}  // namespace
}  // namespace sluice::engine
