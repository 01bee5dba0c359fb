// What a server needs of the engine: a queue with limits, counters that add up, times in order, experts counted.
#include <gtest/gtest.h>

#include "core/error.h"
#include "harness.h"
#include "model/toy_model.h"

namespace sluice::engine {
namespace {

using testing::Answer;
using testing::mixed_requests;
using testing::run;

class EngineService : public ::testing::Test {
 protected:
  sluice::testing::TestDecoder model_ =
      sluice::testing::load_test_decoder(sluice::testing::bundled_model("deepseek_v3"));
  const model::Decoder& decoder() const { return *model_.decoder; }

  static Request small(std::int64_t prompt = 8) {
    Request r;
    for (std::int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<std::int32_t>(3 + i));
    r.max_new_tokens = 3;
    return r;
  }
};

TEST_F(EngineService, AFullQueueRefusesAsData) {
  EngineOptions options{64, 2};
  options.max_queued_requests = 3;
  Engine engine(decoder(), options);
  // Two will run at once, three may wait.
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine.try_submit(small()).accepted()) << i;
  const Submission refused = engine.try_submit(small());
  EXPECT_EQ(refused.refusal, Submission::Refusal::queued_requests);
  EXPECT_EQ(refused.limit, 3);
  EXPECT_EQ(refused.waiting, 3);
  try {
    engine.submit(small());
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resources);
    EXPECT_NE(std::string(e.what()).find("3 requests wait"), std::string::npos) << e.what();
  }
  engine.step();
  EXPECT_EQ(engine.stats().running, 2);
  EXPECT_FALSE(engine.try_submit(small()).accepted());
  while (!engine.idle()) engine.step();
  EXPECT_TRUE(engine.try_submit(small()).accepted());
  EXPECT_EQ(engine.stats().refused, 3);
  EXPECT_EQ(engine.stats().submitted, 6);
}

TEST_F(EngineService, QueuedTokensAreLimited) {
  EngineOptions options{64, 1};
  options.max_queued_tokens = 100;
  Engine engine(decoder(), options);
  EXPECT_TRUE(engine.try_submit(small(90)).accepted());  // will run at once
  EXPECT_FALSE(engine.try_submit(small(90)).accepted());
  EXPECT_TRUE(engine.try_submit(small(10)).accepted());
  EXPECT_EQ(engine.stats().waiting_tokens, 100);
  const Submission refused = engine.try_submit(small(1));
  EXPECT_EQ(refused.refusal, Submission::Refusal::queued_tokens);
  EXPECT_EQ(refused.waiting, 100);
  while (!engine.idle()) engine.step();
  EXPECT_TRUE(engine.try_submit(small(500)).accepted()) << "an empty queue takes any request";
}

TEST_F(EngineService, CountersAddUp) {
  Engine engine(decoder(), {40, 3});
  std::vector<RequestId> ids;
  for (const Request& r : mixed_requests(1024)) ids.push_back(engine.submit(r));
  for (int i = 0; i < 3; ++i) engine.step();
  engine.cancel(ids[1]);
  engine.cancel(ids[6]);
  engine.cancel(ids[6]);
  const auto adds_up = [&] {
    const EngineStats& s = engine.stats();
    return s.submitted == s.finished + s.failed + s.cancelled + s.running + s.waiting;
  };
  EXPECT_TRUE(adds_up());
  while (!engine.idle()) {
    engine.step();
    EXPECT_TRUE(adds_up());
  }
  const EngineStats& s = engine.stats();
  EXPECT_EQ(s.submitted, 7);
  EXPECT_EQ(s.cancelled, 2);
  EXPECT_EQ(s.finished, 5);
  EXPECT_EQ(s.running + s.waiting + s.waiting_tokens + s.kv_blocks_used, 0);
  EXPECT_NEAR(s.time.total(), s.prefill_seconds + s.decode_seconds, 1e-6);
  for (const double part : {s.time.schedule, s.time.execute, s.time.sample, s.time.output}) EXPECT_GT(part, 0.0);
  EXPECT_EQ(s.kv_block_tokens, 16);
}

TEST_F(EngineService, TimesAreInOrder) {
  Engine engine(decoder(), {64, 1});
  const auto before = Timing::Time::clock::now();
  engine.submit(small());
  engine.submit(small(9));
  std::vector<Timing> ends;
  while (!engine.idle()) {
    for (const Event& e : engine.step()) {
      EXPECT_GE(e.timing.submitted, before);
      EXPECT_GE(e.timing.scheduled, e.timing.submitted);
      EXPECT_GT(e.timing.first_token, e.timing.scheduled);
      if (e.finish != FinishReason::none) ends.push_back(e.timing);
    }
  }
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_GT(ends[1].scheduled, ends[0].first_token) << "the second waited for the first";
}

TEST(EngineExpertLoad, CountsTheChosenExperts) {
  const sluice::testing::ToyModel toy;  // its layer 1 is dense
  const auto model = sluice::testing::load_test_decoder(toy.folder());
  const model::Decoder& decoder = *model.decoder;
  Engine engine(decoder, {64, 2});
  Request r = mixed_requests(320)[1];
  r.max_new_tokens = 1;
  r.last_logits = r.prompt_logprobs = false;
  engine.submit(r);
  while (!engine.idle()) engine.step();
  const auto routes = sluice::testing::prompt_routes(decoder, r.prompt);
  const ExpertLoad load = engine.expert_load();
  EXPECT_EQ(load.tokens, std::ssize(r.prompt));
  ASSERT_EQ(load.layers.size(), routes.size());
  for (std::size_t l = 0; l < routes.size(); ++l) {
    EXPECT_EQ(load.layers[l].layer, l == 0 ? 0 : 2);
    std::vector<std::int64_t> expected(load.layers[l].choices.size(), 0);
    for (const std::int32_t id : routes[l]) ++expected[static_cast<std::size_t>(id)];
    EXPECT_EQ(load.layers[l].choices, expected) << "layer " << load.layers[l].layer;
  }
}

// Requests come and go at random moments; whatever is left finishes, and every block comes back.
TEST_F(EngineService, FiveHundredCancellations) {
  Engine engine(decoder(), {48, 6, 0, 512});
  const Request base = mixed_requests(1024)[3];
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < 500; ++i) {
    Request r = base;
    r.prompt.resize(1 + (i * 7) % 60);
    r.prompt_logprobs = i % 5 == 0;
    r.prompt_top_logprobs = 0;
    r.max_new_tokens = 4;
    ids.push_back(engine.submit(std::move(r)));
    if (i % 4 == 0) engine.step();
    engine.cancel(ids[i - i % 3]);
  }
  while (!engine.idle()) engine.step();
  const EngineStats& s = engine.stats();
  EXPECT_EQ(s.finished + s.cancelled, 500);
  EXPECT_GT(s.cancelled, 100);
  EXPECT_EQ(s.kv_blocks_used, 0);
  engine.clear_prefix_cache();
  EXPECT_EQ(engine.stats().kv_blocks_cached, 0);
}

}  // namespace
}  // namespace sluice::engine
