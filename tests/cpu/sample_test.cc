// Which token is chosen: exact cases, sets of allowed tokens made by hand, independence of the batch.
#include <cmath>
#include <set>

#include "backend_fixture.h"
#include "cpu/sample_random.h"

namespace sluice::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Sampled {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
};

Sampled sample(CpuBackend& backend, const std::vector<float>& logits, std::int64_t vocab,
               const std::vector<SampleParams>& params) {
  const auto rows = static_cast<std::int64_t>(params.size());
  Sampled s{std::vector<std::int32_t>(params.size(), -7), poisoned_floats(params.size())};
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend, rows, 1, vocab);
  backend.sample({.logits = view(logits, rows, vocab),
                  .params = params.data(),
                  .tokens = s.tokens.data(),
                  .logprobs = s.logprobs.data()},
                 workspace, {});
  return s;
}

class SampleTest : public BackendTest {
 protected:
  std::int32_t one(const std::vector<float>& logits, const SampleParams& params) {
    return sample(backend_, logits, static_cast<std::int64_t>(logits.size()), {params}).tokens[0];
  }

  // Every token that comes up in 3000 draws.
  std::set<std::int32_t> drawn(const std::vector<float>& logits, SampleParams params) {
    std::vector<SampleParams> all(3000, params);
    std::vector<float> rows;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].step = i;
      rows.insert(rows.end(), logits.begin(), logits.end());
    }
    const Sampled s = sample(backend_, rows, static_cast<std::int64_t>(logits.size()), all);
    return {s.tokens.begin(), s.tokens.end()};
  }

  // Probabilities 0.40 0.30 0.15 0.10 0.05 at ids 31 2 17 8 30, everything else impossible.
  static std::vector<float> five() {
    std::vector<float> logits(40, -kInf);
    logits[31] = std::log(0.40f);
    logits[2] = std::log(0.30f);
    logits[17] = std::log(0.15f);
    logits[8] = std::log(0.10f);
    logits[30] = std::log(0.05f);
    return logits;
  }
};

using Set = std::set<std::int32_t>;

// Known answers published with the generator (Random123).
TEST(SampleRandom, PhiloxKnownAnswers) {
  const auto check = [](PhiloxBlock counter, std::uint32_t k0, std::uint32_t k1, PhiloxBlock expected) {
    const PhiloxBlock r = philox4x32(counter, k0, k1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(r.word[i], expected.word[i]) << i;
  };
  check({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}});
  check({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u, {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}});
  check({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u,
        {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}});
}

TEST(SampleRandom, UniformUsesSeedAndStep) {
  EXPECT_EQ(uniform_at(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  std::set<double> values;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::uint64_t step = 0; step < 50; ++step) {
      const double u = uniform_at(seed << 40 | seed, step << 35 | step);
      EXPECT_GE(u, 0.0);
      EXPECT_LT(u, 1.0);
      values.insert(u);
      sum += u;
    }
  }
  EXPECT_EQ(values.size(), 2500u);
  EXPECT_NEAR(sum / 2500, 0.5, 5 * std::sqrt(1.0 / 12 / 2500));
}

TEST_P(SampleTest, GreedyTakesTheFirstMaximum) {
  for (const std::size_t vocab : {1u, 2u, 15u, 16u, 17u, 1024u, 1025u}) {
    for (const std::size_t at : {std::size_t{0}, vocab / 2, vocab - 1}) {
      std::vector<float> logits = normal_floats(vocab, 1);
      logits[at] = 9.0f;
      EXPECT_EQ(one(logits, {}), static_cast<std::int32_t>(at));
      logits[vocab - 1] = 9.0f;  // a tie: the lower id
      EXPECT_EQ(one(logits, {}), static_cast<std::int32_t>(at));
    }
  }
  EXPECT_EQ(one({-5, -1, -1}, {}), 1);
  EXPECT_EQ(one({-0.0f, 0.0f}, {}), 0);
}

TEST_P(SampleTest, DegenerateParametersAreGreedy) {
  const std::vector<float> logits = five();
  EXPECT_EQ(drawn(logits, {.temperature = 1e-6f}), Set{31});
  EXPECT_EQ(drawn(logits, {.temperature = 1.0f, .top_k = 1}), Set{31});
  EXPECT_EQ(drawn(logits, {.temperature = 1.0f, .top_p = 0.0f}), Set{31});
  EXPECT_EQ(drawn(logits, {.temperature = 1.0f, .min_p = 1.0f}), Set{31});
  EXPECT_EQ(drawn(logits, {.temperature = 1.0f, .min_p = 2.0f}), Set{31});
}

TEST_P(SampleTest, EveryTokenThatIsPossibleAndNoOther) {
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f}), (Set{2, 8, 17, 30, 31}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 100}), (Set{2, 8, 17, 30, 31}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 7}), (Set{2, 8, 17, 30, 31}));
  EXPECT_EQ(drawn(five(), {.temperature = 3.4e38f}), (Set{2, 8, 17, 30, 31}));
}

TEST_P(SampleTest, TopK) {
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 2}), (Set{31, 2}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 4}), (Set{31, 2, 17, 8}));
  EXPECT_EQ(drawn({1, 2, 1, 1, 2, 1}, {.temperature = 1.0f, .top_k = 4}), (Set{1, 4, 0, 2}));  // ties: lowest ids
}

TEST_P(SampleTest, TopP) {
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.39f}), Set{31});
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.41f}), (Set{31, 2}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.69f}), (Set{31, 2}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.71f}), (Set{31, 2, 17}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.96f}), (Set{31, 2, 17, 8, 30}));
  EXPECT_EQ(drawn({3, 3, 3, 3}, {.temperature = 1.0f, .top_p = 0.5f}), (Set{0, 1}));  // exactly half is enough
}

TEST_P(SampleTest, MinP) {
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .min_p = 0.3f}), (Set{31, 2, 17}));  // 0.15 / 0.4 = 0.375
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .min_p = 0.2f}), (Set{31, 2, 17, 8}));
  EXPECT_EQ(drawn({0, 0, 1}, {.temperature = 1.0f, .min_p = 0.3f}), (Set{0, 1, 2}));  // e^-1 = 0.37
}

// The order of the filters shows where one of them changes what the next one sees.
TEST_P(SampleTest, TemperatureThenTopKThenTopPThenMinP) {
  // Of the three best, renormalised: 0.47 0.35 0.18, so two make 0.82. Without renormalisation they would make 0.7.
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 3, .top_p = 0.8f}), (Set{31, 2}));
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_p = 0.8f}), (Set{31, 2, 17}));
  // At temperature 1/2 probabilities are squared: 0.55 0.31 0.08 0.03 0.01.
  EXPECT_EQ(drawn(five(), {.temperature = 0.5f, .top_p = 0.8f}), (Set{31, 2}));
  EXPECT_EQ(drawn(five(), {.temperature = 2.0f, .min_p = 0.4f}), (Set{31, 2, 17, 8}));  // roots: 0.1 > 0.5 of 0.4
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .min_p = 0.4f}), (Set{31, 2}));
  // min_p last: it cannot make room for others within top_k.
  EXPECT_EQ(drawn(five(), {.temperature = 1.0f, .top_k = 4, .top_p = 0.99f, .min_p = 0.26f}), (Set{31, 2, 17}));
}

TEST_P(SampleTest, RowsWithoutAnAnswer) {
  for (const float temperature : {0.0f, 1.0f}) {
    const SampleParams p{.temperature = temperature};
    EXPECT_EQ(one({1, kNan, 3}, p), -1);
    EXPECT_EQ(one({kInf, kNan, 3}, p), -1);
    EXPECT_EQ(one({-kInf, -kInf}, p), -1);
    EXPECT_EQ(one({kInf, kInf}, p), -1);
    EXPECT_EQ(one({-kInf, kInf}, p), -1);
    EXPECT_EQ(one({1, kInf, 3, kInf}, p), 1);
    EXPECT_EQ(one({-kInf, 3, -kInf}, p), 1);
  }
}

// A bad row leaves its neighbours alone.
TEST_P(SampleTest, BadRowsAmongGoodOnes) {
  std::vector<float> logits{1, 2, 3, kNan, 0, 0, 3, 2, 1};
  const Sampled s = sample(backend_, logits, 3, {{}, {}, {}});
  EXPECT_EQ(s.tokens, (std::vector<std::int32_t>{2, -1, 0}));
  EXPECT_EQ(s.logprobs[1], -kInf);
}

TEST_P(SampleTest, LogprobIsAtTemperatureOne) {
  for (const std::size_t vocab : {1u, 5u, 16u, 1000u, 1024u, 3000u}) {
    std::vector<float> logits = normal_floats(vocab, 3, 4.0f);
    logits[vocab / 3] = 12.0f;
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - 12.0);
    for (const float temperature : {0.0f, 0.5f, 3.0f}) {
      const SampleParams params{.temperature = temperature, .top_k = 50, .top_p = 0.9f, .seed = 5, .step = vocab};
      const Sampled s = sample(backend_, logits, static_cast<std::int64_t>(vocab), {params});
      ASSERT_GE(s.tokens[0], 0);
      const double exact = logits[static_cast<std::size_t>(s.tokens[0])] - 12.0 - std::log(sum);
      EXPECT_NEAR(s.logprobs[0], exact, 1e-6 + std::fabs(exact) * 1e-7) << vocab;
    }
  }
}

TEST_P(SampleTest, LogprobOfHugeLogits) {
  const Sampled s = sample(backend_, {3e38f, -3e38f, 3e38f, 1, kInf, 1, 0, -kInf}, 4, {{}, {}});
  EXPECT_EQ(s.tokens, (std::vector<std::int32_t>{0, 0}));
  EXPECT_NEAR(s.logprobs[0], -std::log(2.0), 1e-6);
  EXPECT_EQ(s.logprobs[1], 0.0f);
}

TEST_P(SampleTest, LogprobsAreOptional) {
  const std::vector<float> logits{1, 5, 2};
  std::int32_t token = -7;
  const SampleParams params;
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend_, 1, 1, 3);
  backend_.sample({.logits = view(logits, 1, 3), .params = &params, .tokens = &token}, workspace, kStream);
  EXPECT_EQ(token, 1);
}

TEST_P(SampleTest, TokensDoNotDependOnBatchOrThreads) {
  const std::int64_t vocab = 2500;
  const std::int64_t rows = 40;
  const std::vector<float> logits = normal_floats(static_cast<std::size_t>(rows * vocab), 4, 2.0f);
  std::vector<SampleParams> params;
  for (std::int64_t r = 0; r < rows; ++r) {
    params.push_back({.temperature = 0.5f + 0.1f * static_cast<float>(r % 7),
                      .top_k = r % 3 == 0 ? 40 : 0,
                      .top_p = r % 2 == 0 ? 0.9f : 1.0f,
                      .min_p = r % 5 == 0 ? 0.02f : 0.0f,
                      .seed = static_cast<std::uint64_t>(r / 4),
                      .step = static_cast<std::uint64_t>(r)});
  }
  const Sampled all = sample(backend_, logits, vocab, params);
  EXPECT_GT((Set{all.tokens.begin(), all.tokens.end()}).size(), 20u);
  for (const int threads : {1, 5}) {
    ThreadPool pool(threads);
    CpuBackend backend(pool, GetParam());
    const Sampled again = sample(backend, logits, vocab, params);
    EXPECT_EQ(again.tokens, all.tokens);
    EXPECT_EQ(bits_of(again.logprobs), bits_of(all.logprobs));
    for (std::size_t r = 0; r < params.size(); r += 7) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(r) * vocab;
      const Sampled alone = sample(backend, {begin, begin + vocab}, vocab, {params[r]});
      EXPECT_EQ(alone.tokens[0], all.tokens[r]);
      EXPECT_EQ(bits_of(alone.logprobs)[0], bits_of(all.logprobs)[r]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, SampleTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
