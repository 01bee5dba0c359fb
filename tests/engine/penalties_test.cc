// Edits kept up to date token by token against counting everything anew.
#include "engine/penalties.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sluice::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// What OpenAI's and transformers' documentation say, over everything that was read and generated.
double changed(const Request& r, const std::vector<std::int32_t>& answer, std::int32_t token, double logit) {
  const auto in = [token](const std::vector<std::int32_t>& list) {
    return std::count(list.begin(), list.end(), token);
  };
  if (in(r.prompt) + in(answer) > 0) {
    logit = logit > 0 ? logit / r.sampling.repetition_penalty : logit * r.sampling.repetition_penalty;
  }
  logit -= r.sampling.frequency_penalty * static_cast<double>(in(answer));
  logit -= in(answer) > 0 ? r.sampling.presence_penalty : 0.0f;
  for (const LogitBias& b : r.sampling.logit_bias) logit += b.token == token ? b.bias : 0.0f;
  const bool ends = in(r.stop_ids) > 0 || (!r.ignore_eos && in(r.eos_ids) > 0);
  if (ends && std::ssize(answer) < r.min_new_tokens) return -kInf;
  return logit;
}

double edited(const Penalties& p, std::int32_t token, float logit) {
  double x = logit;
  int found = 0;
  for (const LogitEdit& e : p.edits()) {
    if (e.token != token) continue;
    ++found;
    x = (x > 0 ? x / e.divisor : x * e.divisor) + e.add;
  }
  EXPECT_LE(found, 1) << "token " << token << " has more than one edit";
  return x;
}

Request random_request(std::mt19937& rng) {
  Request r;
  for (std::uint64_t n = 1 + rng() % 10; n > 0; --n) r.prompt.push_back(static_cast<std::int32_t>(rng() % 12));
  if (rng() % 2 == 0) r.sampling.presence_penalty = 0.75f;
  if (rng() % 2 == 0) r.sampling.frequency_penalty = -0.25f;
  if (rng() % 2 == 0) r.sampling.repetition_penalty = 1.5f;
  for (std::uint64_t n = rng() % 4; n > 0; --n) {
    r.sampling.logit_bias.push_back({static_cast<std::int32_t>(rng() % 12), static_cast<float>(rng() % 5) - 2.0f});
  }
  if (rng() % 8 == 0) r.sampling.logit_bias.push_back({11, -kInf});
  r.min_new_tokens = static_cast<std::int64_t>(rng() % 6);
  r.eos_ids = {static_cast<std::int32_t>(rng() % 12)};
  r.stop_ids = {static_cast<std::int32_t>(rng() % 12)};
  r.ignore_eos = rng() % 3 == 0;
  return r;
}

TEST(Penalties, AgreeWithCountingAnew) {
  std::mt19937 rng(31);
  for (int round = 0; round < 300; ++round) {
    const Request r = random_request(rng);
    Penalties p(r);
    std::vector<std::int32_t> answer;
    for (int step = 0; step < 12; ++step) {
      for (std::int32_t t = 0; t < 12; ++t) {
        for (const float logit : {-1.5f, 0.0f, 2.5f}) {
          const double expected = changed(r, answer, t, logit);
          if (std::isinf(expected)) {
            EXPECT_EQ(edited(p, t, logit), expected) << round << " " << step << " " << t;
          } else {
            EXPECT_NEAR(edited(p, t, logit), expected, 1e-5) << round << " " << step << " " << t;
          }
        }
      }
      answer.push_back(static_cast<std::int32_t>(rng() % 12));
      p.add_generated(answer.back());
    }
  }
}

TEST(Penalties, ARequestWithoutThemEditsNothing) {
  Request r;
  r.prompt = {1, 2, 3};
  r.eos_ids = {4};
  Penalties p(r);
  p.add_generated(2);
  EXPECT_TRUE(p.edits().empty());
}

}  // namespace
}  // namespace sluice::engine
