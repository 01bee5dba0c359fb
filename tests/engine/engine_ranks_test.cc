// The engine over ranks in one process: answers are those of one rank, whatever the split; idle groups and idle times
// do no harm; a rank that fails ends the run with an error on every rank.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "model/toy_model.h"
#include "rank_run.h"

namespace sluice::engine {
namespace {

using sluice::testing::load_test_decoder;
using sluice::testing::ToyModel;
using testing::Answer;
using testing::mixed_requests;
using testing::RankRun;
using testing::run;

constexpr std::int64_t kVocab = 320;

class EngineRanks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    toy_ = new ToyModel;
    const auto one = load_test_decoder(toy_->folder());
    Engine engine(*one.decoder, {64, 4});
    expected_ = new std::vector<Answer>(run(engine, mixed_requests(kVocab)));
    load_ = new ExpertLoad(engine.expert_load());
  }
  static void TearDownTestSuite() {
    delete toy_;
    delete expected_;
    delete load_;
  }
  static const std::string& folder() { return toy_->folder(); }
  static void expect_clean(RankRun& ranks) {
    for (const std::string& error : ranks.stop()) EXPECT_EQ(error, "");
  }

  static ToyModel* toy_;
  static std::vector<Answer>* expected_;  // of mixed_requests on one rank
  static ExpertLoad* load_;
};
ToyModel* EngineRanks::toy_ = nullptr;
std::vector<Answer>* EngineRanks::expected_ = nullptr;
ExpertLoad* EngineRanks::load_ = nullptr;

TEST_F(EngineRanks, FollowersDoNotChangeAnswers) {
  RankRun ranks(folder(), {64, 4}, {.sizes = {.tp = 3}});
  EXPECT_EQ(run(ranks.engine(), mixed_requests(kVocab)), *expected_);
  EXPECT_EQ(ranks.engine().expert_load().tokens, load_->tokens);
  expect_clean(ranks);
}

// Five kinds of output come back from groups that rank 0 does not compute itself.
TEST_F(EngineRanks, GroupsAnswerAsOneRankDoes) {
  for (const std::int32_t dp : {2, 4}) {
    RankRun ranks(folder(), {64, 4}, {.sizes = {.tp = 4, .dp = dp, .dp_attention = true}});
    EXPECT_EQ(run(ranks.engine(), mixed_requests(kVocab)), *expected_) << dp;
    const EngineStats& stats = ranks.engine().stats();
    EXPECT_EQ(stats.submitted, stats.finished);
    const ExpertLoad load = ranks.engine().expert_load();
    EXPECT_EQ(load.tokens, load_->tokens);
    ASSERT_EQ(load.layers.size(), load_->layers.size());
    for (std::size_t i = 0; i < load.layers.size(); ++i) EXPECT_EQ(load.layers[i].choices, load_->layers[i].choices);
    expect_clean(ranks);
  }
}

TEST_F(EngineRanks, OneRequestLeavesTheOtherGroupsIdle) {
  RankRun ranks(folder(), {64, 4}, {.sizes = {.tp = 2, .dp = 2, .dp_attention = true}});
  for (const std::size_t i : {1, 5}) {
    EXPECT_EQ(run(ranks.engine(), {mixed_requests(kVocab)[i]}).front(), (*expected_)[i]);
  }
  expect_clean(ranks);
}

TEST_F(EngineRanks, RequestsAreSpreadOverGroups) {
  RankRun ranks(folder(), {64, 2}, {.sizes = {.tp = 2, .dp = 2, .dp_attention = true}});
  for (const Request& r : mixed_requests(kVocab)) ranks.engine().submit(r);
  ranks.engine().step();
  EXPECT_EQ(ranks.engine().stats().running, 4);  // two in each group
  while (!ranks.engine().idle()) ranks.engine().step();
  expect_clean(ranks);
}

TEST_F(EngineRanks, APromptGoesWhereItsBeginningIs) {
  RankRun ranks(folder(), {128, 4}, {.sizes = {.tp = 2, .dp = 2, .dp_attention = true}});
  Engine& engine = ranks.engine();
  const std::vector<Request> requests = mixed_requests(kVocab);
  const auto cached = [&](Request r) {
    r.prompt_logprobs = false;
    r.prompt_top_logprobs = 0;
    engine.submit(r);
    std::int64_t tokens = -1;
    while (!engine.idle()) {
      for (const Event& e : engine.step()) tokens = e.cached_tokens;
    }
    return tokens;
  };
  engine.submit(requests[2]);  // keeps the first group in work while the next one comes
  EXPECT_EQ(cached(requests[3]), 0);
  EXPECT_EQ(cached(requests[3]), 80);  // 90 tokens: five blocks of 16, the last token is always computed
  EXPECT_EQ(cached(requests[3]), 80);
  expect_clean(ranks);
}

TEST_F(EngineRanks, CancelReachesEveryGroup) {
  RankRun ranks(folder(), {64, 4}, {.sizes = {.tp = 2, .dp = 2, .dp_attention = true}});
  std::vector<RequestId> ids;
  for (const Request& r : mixed_requests(kVocab)) ids.push_back(ranks.engine().submit(r));
  ranks.engine().step();
  for (const RequestId id : ids) ranks.engine().cancel(id);
  EXPECT_TRUE(ranks.engine().idle());
  EXPECT_EQ(ranks.engine().stats().cancelled, std::ssize(ids));
  EXPECT_EQ(ranks.engine().stats().kv_blocks_used, 0);
  expect_clean(ranks);
}

// What an engine says that has been idle for 2.5 times the limit of a wait; "" when it answers as ever.
std::string after_a_pause(const std::string& folder, double limit_seconds, const std::vector<Answer>& expected) {
  RankRun ranks(folder, {64, 4}, {{.tp = 2}, limit_seconds, limit_seconds / 20});
  std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * limit_seconds));
  std::string error;
  try {
    if (run(ranks.engine(), mixed_requests(kVocab)) != expected) error = "other answers";
  } catch (const Error& e) {
    error = e.what();
  }
  for (const std::string& follower : ranks.stop()) error += follower;
  return error;
}

// The limit of a wait is shorter than the pause: followers are told that rank 0 is alive. On a machine that keeps a
// rank from running for the whole limit, a longer one must do.
TEST_F(EngineRanks, AnIdleEngineDoesNotLoseItsFollowers) {
  std::string error = "not run";
  for (double limit = 1; limit <= 64 && !error.empty(); limit *= 4) error = after_a_pause(folder(), limit, *expected_);
  EXPECT_EQ(error, "");
}

TEST_F(EngineRanks, WithoutWordOfRankZeroFollowersGiveUp) {
  RankRun ranks(folder(), {64, 4}, {.sizes = {.tp = 2}, .timeout_seconds = 0.3, .idle_seconds = 3600});
  ranks.wait_for_followers();
  EXPECT_THROW(run(ranks.engine(), mixed_requests(kVocab)), Error);
  EXPECT_NE(ranks.stop()[1].find("rank 0"), std::string::npos) << ranks.stop()[1];
}

// A follower that was given other options cannot hold the step.
TEST_F(EngineRanks, AFollowerThatFailsEndsTheRun) {
  for (const bool dp : {false, true}) {
    const ParallelSizes sizes{.tp = 2, .dp = dp ? 2 : 1, .dp_attention = dp};
    RankRun ranks(folder(), {64, 4},
                  {.sizes = sizes, .timeout_seconds = 3600, .change = [](int rank, EngineOptions& o) {
                     if (rank == 1) o.max_batch_tokens = o.max_sequences = 2;
                   }});
    try {
      run(ranks.engine(), mixed_requests(kVocab));
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resources);
      EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
    }
    EXPECT_THROW(ranks.engine().step(), Error);  // the run stays over
    EXPECT_NE(ranks.stop()[1].find("step plan with"), std::string::npos) << ranks.stop()[1];
  }
}

}  // namespace
}  // namespace sluice::engine
