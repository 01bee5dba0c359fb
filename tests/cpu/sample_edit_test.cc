// Edits of logits before a token is chosen, tokens that are given, and lists of the most probable ones: by hand, and
// against sorting in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "backend_fixture.h"

namespace sluice::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Sampled {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::int32_t> top_tokens;  // [rows, width]
  std::vector<float> top_logprobs;
};

Sampled sample(CpuBackend& backend, const std::vector<float>& logits, std::int64_t vocab,
               const std::vector<SampleParams>& params, std::int64_t width = 0) {
  const auto rows = static_cast<std::int64_t>(params.size());
  const std::size_t cells = params.size() * static_cast<std::size_t>(width);
  Sampled s{std::vector<std::int32_t>(params.size(), -7), poisoned_floats(params.size()),
            std::vector<std::int32_t>(cells, -7), poisoned_floats(cells)};
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend, rows, 1, vocab);
  SampleArgs args;
  args.logits = view(logits, rows, vocab);
  args.params = params.data();
  args.tokens = s.tokens.data();
  args.logprobs = s.logprobs.data();
  args.top_width = width;
  args.top_tokens = s.top_tokens.data();
  args.top_logprobs = s.top_logprobs.data();
  backend.sample(args, workspace, {});
  return s;
}

class SampleEditTest : public BackendTest {
 protected:
  // Greedy choice after the edits.
  std::int32_t edited(const std::vector<float>& logits, const std::vector<LogitEdit>& edits) {
    SampleParams p;
    p.edits = edits.data();
    p.edit_count = std::ssize(edits);
    return sample(backend_, logits, std::ssize(logits), {p}).tokens[0];
  }
};

TEST_P(SampleEditTest, DividesPositiveAndMultipliesNegativeLogits) {
  EXPECT_EQ(edited({4, 3, 1}, {{0, 2.0f, 0}}), 1);        // 4 / 2 < 3
  EXPECT_EQ(edited({4, 3, 1}, {{0, 1.25f, 0}}), 0);       // 3.2 > 3
  EXPECT_EQ(edited({-1, -1.5f, -9}, {{0, 2.0f, 0}}), 1);  // -2 < -1.5
  EXPECT_EQ(edited({-1, -1.5f, -9}, {{1, 0.5f, 0}}), 1);  // -0.75 > -1
  EXPECT_EQ(edited({4, 3, 1}, {{0, 2.0f, 1.5f}}), 0);     // 4 / 2 + 1.5; added first it would be 2.75
}

TEST_P(SampleEditTest, AddsAndBans) {
  EXPECT_EQ(edited({4, 3, 1}, {{2, 1.0f, 3.5f}}), 2);
  EXPECT_EQ(edited({4, 3, 1}, {{0, 1.0f, -kInf}}), 1);
  EXPECT_EQ(edited({kInf, 3, 1}, {{0, 1.0f, -kInf}}), 1);
  EXPECT_EQ(edited({4, 3}, {{0, 1.0f, -kInf}, {1, 1.0f, -kInf}}), -1);
  EXPECT_EQ(edited({4, 3, 1}, {{-1, 1.0f, 9}, {3, 1.0f, 9}, {1 << 30, 1.0f, 9}}), 0);  // outside the vocabulary
}

TEST_P(SampleEditTest, BannedTokensAreNotDrawn) {
  const std::vector<float> logits = normal_floats(64, 5);
  const std::vector<LogitEdit> edits{{3, 1.0f, -kInf}, {40, 1.0f, -kInf}, {63, 1.0f, -kInf}};
  std::vector<SampleParams> params(3000);
  std::vector<float> rows;
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i] = {.temperature = 5.0f, .top_p = i % 2 == 0 ? 1.0f : 0.99f, .step = i};
    params[i].edits = edits.data();
    params[i].edit_count = std::ssize(edits);
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  const Sampled s = sample(backend_, rows, 64, params);
  const std::set<std::int32_t> seen(s.tokens.begin(), s.tokens.end());
  for (const LogitEdit& e : edits) EXPECT_EQ(seen.count(e.token), 0u) << e.token;
  EXPECT_GT(seen.size(), 50u);
}

// Log-probabilities are those of the model, whatever was changed.
TEST_P(SampleEditTest, LogprobsDoNotSeeEdits) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const std::vector<LogitEdit> edits{{0, 1.0f, -kInf}, {2, 1.0f, 10.0f}};
  SampleParams p{.temperature = 0.0f, .top = 3};
  p.edits = edits.data();
  p.edit_count = 2;
  const Sampled s = sample(backend_, logits, 3, {p}, 3);
  EXPECT_EQ(s.tokens[0], 2);
  EXPECT_NEAR(s.logprobs[0], std::log(0.2), 1e-6);
  EXPECT_EQ(s.top_tokens, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_NEAR(s.top_logprobs[0], std::log(0.5), 1e-6);
}

TEST_P(SampleEditTest, GivenTokensAreScoredNotChosen) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f), 1, kNan, 2};
  std::vector<SampleParams> params(2);
  params[0].given = 1;
  params[1].given = 0;
  const Sampled s = sample(backend_, logits, 3, params);
  EXPECT_EQ(s.tokens, (std::vector<std::int32_t>{1, -1}));  // a damaged row has no log-probability
  EXPECT_NEAR(s.logprobs[0], std::log(0.3), 1e-6);
}

TEST_P(SampleEditTest, TopIsASortedPrefixWithTiesToTheLowestId) {
  const Sampled tie = sample(backend_, {1, 2, 1, 2, 0}, 5, {{.top = 3}}, 4);
  EXPECT_EQ(tie.top_tokens, (std::vector<std::int32_t>{1, 3, 0, -1}));
  for (const std::size_t vocab : {1u, 7u, 1000u, 3000u}) {
    const std::vector<float> logits = normal_floats(vocab, 11, 3.0f);
    std::vector<std::int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return at(a) > at(b); });
    double sum = 0;
    for (const std::int32_t id : order) sum += std::exp(at(id) - at(order[0]));
    for (const std::int32_t top : {1, 5, 20, 128}) {
      const Sampled s = sample(backend_, logits, std::ssize(logits), {{.temperature = 2.0f, .top = top}}, 128);
      const auto wanted = std::min(static_cast<std::size_t>(top), vocab);
      for (std::size_t i = 0; i < 128; ++i) {
        ASSERT_EQ(s.top_tokens[i], i < wanted ? order[i] : -1) << vocab << " " << top << " " << i;
        if (i >= wanted) continue;
        ASSERT_NEAR(s.top_logprobs[i], at(order[i]) - at(order[0]) - std::log(sum), 3e-6);
        if (order[i] == s.tokens[0]) {
          EXPECT_EQ(s.top_logprobs[i], s.logprobs[0]);
        }
      }
    }
  }
}

TEST_P(SampleEditTest, RowsHaveTheirOwnTop) {
  const std::vector<float> logits{1, 2, 3, 3, 2, 1, kNan, 0, 0};
  const Sampled s = sample(backend_, logits, 3, {{.top = 0}, {.top = 2}, {.top = 2}}, 2);
  EXPECT_EQ(s.top_tokens, (std::vector<std::int32_t>{-1, -1, 0, 1, -1, -1}));
  EXPECT_EQ(s.tokens[2], -1);
}

INSTANTIATE_TEST_SUITE_P(Isa, SampleEditTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
