// The engine on real decoders: batches, chunks, preemption and sampling change no bit; failures stay with their
// request.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "harness.h"
#include "model/toy_model.h"

namespace sluice::engine {
namespace {

using sluice::testing::load_test_decoder;
using sluice::testing::TestDecoder;
using sluice::testing::ToyModel;
using sluice::testing::ToyOptions;
using testing::Answer;
using testing::collect;
using testing::mixed_requests;
using testing::run;

class ToyEngine : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    toy_ = new ToyModel;
    model_ = new TestDecoder(load_test_decoder(toy_->folder()));
  }
  static void TearDownTestSuite() {
    delete model_;
    delete toy_;
  }
  static const model::Decoder& decoder() { return *model_->decoder; }
  static std::vector<Request> requests() { return mixed_requests(decoder().config().vocab); }
  // Every request in an engine of its own, its prompt in one step.
  static std::vector<Answer> one_by_one() {
    std::vector<Answer> answers;
    for (const Request& r : requests()) answers.push_back(run(decoder(), {512, 1, 0, 0, 512}, {r}).front());
    return answers;
  }

  static ToyModel* toy_;
  static TestDecoder* model_;
};
ToyModel* ToyEngine::toy_ = nullptr;
TestDecoder* ToyEngine::model_ = nullptr;

TEST_F(ToyEngine, BatchEqualsOneByOne) {
  const std::vector<Answer> expected = one_by_one();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::ssize(expected[i].tokens), requests()[i].max_new_tokens);
    EXPECT_EQ(expected[i].finish, FinishReason::length);
    EXPECT_EQ(expected[i].prompt_logprobs.size(), i % 3 == 0 ? requests()[i].prompt.size() - 1 : 0);
    EXPECT_EQ(expected[i].last_logits.size(), i % 3 == 1 ? 320u : 0u);
  }
  EXPECT_EQ(run(decoder(), {512, 16}, requests()), expected);
  EXPECT_EQ(run(decoder(), {512, 3}, requests()), expected);
}

TEST_F(ToyEngine, ChunkedPrefillEqualsOneGo) {
  const std::vector<Answer> expected = one_by_one();
  EXPECT_EQ(run(decoder(), {9, 7, 0, 0, 7}, requests()), expected);
  EXPECT_EQ(run(decoder(), {33, 2, 0, 0, 5}, requests()), expected);
}

TEST_F(ToyEngine, PreemptionEqualsPlentyOfBlocks) {
  std::vector<Request> many = requests();
  for (Request& r : many) r.max_new_tokens = 60;
  const std::vector<Answer> expected = run(decoder(), {512, 16, 0, 4096}, many);
  Engine tight(decoder(), {64, 16, 0, 160});
  EXPECT_EQ(run(tight, many), expected);
  EXPECT_GT(tight.stats().preemptions, 0);
}

TEST_F(ToyEngine, SamplingDependsOnTheSeedOnly) {
  Request r = requests()[1];
  r.max_new_tokens = 30;
  r.sampling = {1.5f, 0, 1.0f, 0.0f, 77};
  const Answer alone = run(decoder(), {}, {r}).front();
  EXPECT_EQ(run(decoder(), {}, {r}).front(), alone);
  Request other = r;
  other.sampling.seed = 78;
  EXPECT_NE(run(decoder(), {}, {other}).front().tokens, alone.tokens);
  std::vector<Request> batch = requests();
  batch.push_back(r);
  EXPECT_EQ(run(decoder(), {50, 16}, batch).back(), alone);
}

TEST_F(ToyEngine, LogprobsAreThoseOfTheLogits) {
  Request r = requests()[3];
  r.max_new_tokens = 1;
  r.sampling = {};
  r.last_logits = true;
  const Answer a = run(decoder(), {}, {r}).front();
  const auto best = std::max_element(a.last_logits.begin(), a.last_logits.end());
  ASSERT_EQ(a.tokens.size(), 1u);
  EXPECT_EQ(a.tokens[0], best - a.last_logits.begin());
  double sum = 0.0;
  for (const float x : a.last_logits) sum += std::exp(static_cast<double>(x) - *best);
  EXPECT_NEAR(a.logprobs[0], -std::log(sum), 1e-5);
  // Asking for the generated token as part of the prompt gives the same log-probability.
  Request longer = r;
  longer.prompt.push_back(a.tokens[0]);
  longer.prompt_logprobs = true;
  longer.max_new_tokens = 0;
  EXPECT_NEAR(run(decoder(), {}, {longer}).front().prompt_logprobs.back(), a.logprobs[0], 1e-5);
}

TEST_F(ToyEngine, StopsAtStopIds) {
  Request r = requests()[2];
  r.max_new_tokens = 20;
  const std::vector<std::int32_t> tokens = run(decoder(), {}, {r}).front().tokens;
  r.stop_ids = {tokens[4]};
  const Answer a = run(decoder(), {}, {r}).front();
  const auto first = std::find(tokens.begin(), tokens.end(), tokens[4]) - tokens.begin();
  EXPECT_EQ(a.finish, FinishReason::stop);
  EXPECT_EQ(a.tokens, std::vector<std::int32_t>(tokens.begin(), tokens.begin() + first + 1));
}

TEST_F(ToyEngine, ReadsAPromptWithoutGenerating) {
  Request r = requests()[1];
  r.max_new_tokens = 0;
  r.last_logits = false;
  const Answer nothing = run(decoder(), {}, {r}).front();
  EXPECT_TRUE(nothing.tokens.empty());
  EXPECT_EQ(nothing.finish, FinishReason::length);
  r.last_logits = r.prompt_logprobs = true;
  const Answer all = run(decoder(), {}, {r}).front();
  EXPECT_TRUE(all.tokens.empty());
  EXPECT_EQ(all.last_logits, run(decoder(), {}, {requests()[1]}).front().last_logits);
  EXPECT_EQ(all.prompt_logprobs.size(), r.prompt.size() - 1);
}

TEST_F(ToyEngine, CancelFreesEveryBlockAndLeavesOthersAlone) {
  const std::vector<Answer> expected = one_by_one();
  Engine engine(decoder(), {40, 4});
  std::vector<RequestId> ids;
  for (const Request& r : requests()) ids.push_back(engine.submit(r));
  std::map<RequestId, Answer> answers;
  for (int i = 0; i < 4; ++i) collect(engine.step(), answers);
  engine.cancel(ids[1]);  // running
  engine.cancel(ids[6]);  // waiting
  engine.cancel(RequestId{999});
  const std::size_t tokens_before = answers[ids[1]].tokens.size();
  while (!engine.idle()) collect(engine.step(), answers);
  EXPECT_EQ(answers[ids[1]].tokens.size(), tokens_before);
  EXPECT_EQ(answers.count(ids[6]), 0u);
  for (const std::size_t i : {0u, 2u, 3u, 4u, 5u}) EXPECT_EQ(answers[ids[i]], expected[i]) << i;
  EXPECT_EQ(engine.stats().kv_blocks_used, 0);
  EXPECT_TRUE(engine.step().empty());
}

TEST_F(ToyEngine, RefusesWhatCannotFinish) {
  Engine engine(decoder(), {64, 4, 128, 64});
  const auto refusal = [&](std::size_t prompt, std::int64_t new_tokens) -> std::string {
    Request r;
    r.prompt.assign(prompt, 1);
    r.max_new_tokens = new_tokens;
    try {
      engine.submit(r);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal(0, 5).find("empty prompt"), std::string::npos);
  EXPECT_NE(refusal(128, 5).find("prompt of 128 tokens; expected at most 127"), std::string::npos);
  EXPECT_NE(refusal(60, 30).find("60 tokens and 30 new ones"), std::string::npos);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(refusal(60, 5), "");
  engine.cancel(RequestId{1});
  EXPECT_THROW(Engine(decoder(), {64, 4, 1024}), Error);  // the model has 512 positions
}

TEST_F(ToyEngine, CutsNewTokensAtTheContext) {
  Request r;
  r.prompt.assign(20, 5);
  r.max_new_tokens = 1000;
  const Answer a = run(decoder(), {64, 4, 32}, {r}).front();
  EXPECT_EQ(a.tokens.size(), 12u);
  EXPECT_EQ(a.finish, FinishReason::length);
}

TEST_F(ToyEngine, CountsTokensAndWeights) {
  Engine engine(decoder(), {});
  Request r;
  r.prompt = {1, 2, 4, 8, 16, 32};
  r.max_new_tokens = 5;
  run(engine, {r});
  const EngineStats& s = engine.stats();
  EXPECT_EQ(s.prefill_steps, 1);
  EXPECT_EQ(s.prefill_tokens, 6);
  EXPECT_EQ(s.decode_steps, 4);
  EXPECT_EQ(s.decode_tokens, 4);
  EXPECT_EQ(s.generated_tokens, 5);
  // One token: 3 of 8 experts in each of two layers.
  const std::int64_t one = decoder().weight_bytes().per_token + 2 * 3 * decoder().expert_bytes(0);
  EXPECT_EQ(s.decode_weight_bytes, 4 * one);
  // Six tokens: every expert that any of them chose, once.
  std::int64_t chosen = 0;
  std::vector<std::size_t> distinct;
  for (const std::vector<std::int32_t>& ids : sluice::testing::prompt_routes(decoder(), r.prompt)) {
    distinct.push_back(std::set<std::int32_t>(ids.begin(), ids.end()).size());
    chosen += std::ssize(std::set<std::int32_t>(ids.begin(), ids.end()));
  }
  ASSERT_NE(distinct[0], distinct[1]) << "the prompt cannot show that a layer's ids are used for another";
  EXPECT_EQ(s.prefill_weight_bytes, decoder().weight_bytes().per_token + chosen * decoder().expert_bytes(0));
  EXPECT_GT(s.prefill_seconds, 0.0);
  EXPECT_GT(s.decode_seconds, 0.0);
}

// A token whose embedding is NaN.
TEST(EngineFailures, NanEndsItsRequestOnly) {
  ToyOptions damaged;
  damaged.nan_token = 13;
  const ToyModel toy(damaged);
  const TestDecoder t = load_test_decoder(toy.folder());
  std::vector<Request> requests = mixed_requests(320);
  for (Request& r : requests) {
    std::replace(r.prompt.begin(), r.prompt.end(), 13, 14);
    r.prompt_logprobs = r.last_logits = true;
  }
  const std::vector<Answer> healthy = run(*t.decoder, {64, 8}, requests);
  requests[1].prompt[5] = 13;
  requests[4].prompt[15] = 13;  // its last token
  requests[4].prompt_logprobs = false;
  for (const EngineOptions& options : {EngineOptions{64, 8}, EngineOptions{512, 8}, EngineOptions{64, 1}}) {
    Engine engine(*t.decoder, options);
    // Twice: blocks that hold NaN are given to others.
    for (int round = 0; round < 2; ++round) {
      const std::vector<Answer> answers = run(engine, requests);
      for (const std::size_t i : {0u, 2u, 3u, 5u, 6u}) EXPECT_EQ(answers[i], healthy[i]) << i;
      EXPECT_EQ(answers[1].finish, FinishReason::error);
      EXPECT_NE(answers[1].error.find("logits at position 5 are NaN"), std::string::npos) << answers[1].error;
      EXPECT_NE(answers[4].error.find("logits at position 15 are NaN"), std::string::npos) << answers[4].error;
      EXPECT_TRUE(answers[4].tokens.empty());
    }
  }
}

// A cache of latents: one layer group, one head.
TEST(EngineLatent, BatchEqualsOneByOne) {
  const TestDecoder t = load_test_decoder(sluice::testing::bundled_model("deepseek_v3"));
  const std::vector<Request> requests = mixed_requests(1024);
  std::vector<Answer> expected;
  for (const Request& r : requests) expected.push_back(run(*t.decoder, {512, 1, 0, 0, 512}, {r}).front());
  EXPECT_EQ(run(*t.decoder, {512, 16}, requests), expected);
  EXPECT_EQ(run(*t.decoder, {33, 3, 0, 0, 5}, requests), expected);
}

// The bundled models through the engine: greedy answers of the reference, all prompts in one batch.
class EngineReference : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineReference, GreedyAnswers) {
  const std::string folder = sluice::testing::bundled_model(GetParam());
  const TestDecoder t = load_test_decoder(folder);
  const std::vector<sluice::testing::ReferencePrompt> references = sluice::testing::read_references(folder);
  std::vector<Request> requests;
  for (const sluice::testing::ReferencePrompt& reference : references) {
    Request& r = requests.emplace_back();
    r.prompt = reference.input_ids;
    r.max_new_tokens = std::ssize(reference.greedy);
  }
  const std::vector<Answer> answers = run(*t.decoder, {}, requests);
  for (std::size_t i = 0; i < references.size(); ++i) EXPECT_EQ(answers[i].tokens, references[i].greedy) << i;
}

INSTANTIATE_TEST_SUITE_P(Bundled, EngineReference, ::testing::Values("qwen3_moe", "deepseek_v3"));

}  // namespace
}  // namespace sluice::engine
