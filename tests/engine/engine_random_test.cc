// Random arrivals, cancellations, policies and sizes on a real model: each answer has the bits of a run alone, without
// chunks and without a prefix cache.
#include <gtest/gtest.h>

#include <random>

#include "harness.h"

namespace sluice::engine {
namespace {

using testing::Answer;
using testing::collect;
using testing::mixed_requests;
using testing::run;

// Requests that share beginnings of every length, with all kinds of outputs.
std::vector<Request> pool_of_requests(std::mt19937& rng) {
  const std::vector<Request> kinds = mixed_requests(1024);
  const std::vector<std::int32_t> base = kinds[3].prompt;  // 90 tokens
  std::vector<Request> pool;
  for (std::size_t i = 0; i < 12; ++i) {
    Request r = kinds[i % kinds.size()];
    r.prompt.assign(base.begin(), base.begin() + 1 + static_cast<std::ptrdiff_t>(rng() % 60));
    if (rng() % 3 == 0) r.prompt.back() = static_cast<std::int32_t>(rng() % 1024);
    r.max_new_tokens = 1 + static_cast<std::int64_t>(rng() % 50);
    r.priority = static_cast<std::int32_t>(rng() % 3);
    r.cache_salt = rng() % 4 == 0 ? 1 : 0;
    pool.push_back(std::move(r));
  }
  return pool;
}

EngineOptions random_options(std::mt19937& rng) {
  EngineOptions o;
  o.max_sequences = 1 + static_cast<std::int64_t>(rng() % 8);
  o.max_batch_tokens = o.max_sequences + static_cast<std::int64_t>(rng() % 80);
  o.max_logit_rows = o.max_sequences + static_cast<std::int64_t>(rng() % 10);
  o.kv_tokens = 112 + 16 * static_cast<std::int64_t>(rng() % 6);  // the longest request needs 109
  o.policy = static_cast<SchedulePolicy>(rng() % 3);
  o.prefix_cache = rng() % 5 != 0;
  return o;
}

class EngineRandom : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineRandom, AnswersDoNotDependOnTheirCompany) {
  const auto model = sluice::testing::load_test_decoder(sluice::testing::bundled_model(GetParam()));
  std::mt19937 rng(5);
  const std::vector<Request> pool = pool_of_requests(rng);
  EngineOptions alone{512, 1, 0, 0, 512};
  alone.prefix_cache = false;
  std::vector<Answer> expected;
  for (const Request& r : pool) expected.push_back(run(*model.decoder, alone, {r}).front());
  std::int64_t preemptions = 0, hits = 0, compared = 0;
  for (int round = 0; round < 6; ++round) {
    Engine engine(*model.decoder, random_options(rng));
    std::map<RequestId, std::size_t> asked;
    std::map<RequestId, Answer> answers;
    for (int i = 0; i < 30; ++i) {
      const std::size_t which = rng() % pool.size();
      asked[engine.submit(pool[which])] = which;
      for (std::uint64_t steps = rng() % 3; steps > 0; --steps) collect(engine.step(), answers);
      if (rng() % 8 == 0)
        engine.cancel(std::next(asked.begin(), static_cast<std::ptrdiff_t>(rng() % asked.size()))->first);
    }
    while (!engine.idle()) collect(engine.step(), answers);
    for (const auto& [id, which] : asked) {
      if (answers[id].finish == FinishReason::none) continue;  // cancelled
      EXPECT_EQ(answers[id], expected[which]) << "round " << round << " request " << static_cast<std::uint64_t>(id);
      ++compared;
    }
    EXPECT_EQ(engine.stats().kv_blocks_used, 0);
    preemptions += engine.stats().preemptions;
    hits += engine.stats().prefix_hit_tokens;
  }
  EXPECT_GT(preemptions, 5);
  EXPECT_GT(hits, 500);
  EXPECT_GT(compared, 120);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineRandom, ::testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss"));

}  // namespace
}  // namespace sluice::engine
