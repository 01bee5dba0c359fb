// Sampled tokens against an independent sampler in float64, and their frequencies against the probabilities.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend_fixture.h"
#include "cpu/sample_random.h"

namespace sluice::cpu {
namespace {

using SampleDistributionTest = BackendTest;

std::vector<std::int32_t> draw(CpuBackend& backend, const std::vector<float>& logits,
                               const std::vector<SampleParams>& params) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const auto rows = static_cast<std::int64_t>(params.size());
  std::vector<std::int32_t> tokens(params.size(), -7);
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend, rows, 1, vocab);
  ConstTensorView same_row(logits.data(), DType::f32, rows, vocab, 0);  // every row is the same one
  backend.sample({.logits = same_row, .params = params.data(), .tokens = tokens.data()}, workspace, {});
  return tokens;
}

// Probabilities after all filters, by sorting the whole vocabulary.
std::vector<double> filtered(const std::vector<float>& logits, const SampleParams& p) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weight(n);
  for (std::size_t i = 0; i < n; ++i) {
    weight[i] = std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / p.temperature);
  }
  std::size_t kept = p.top_k > 0 ? std::min<std::size_t>(n, static_cast<std::size_t>(p.top_k)) : n;
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weight[order[i]];
  if (p.top_p < 1) {
    double before = 0;
    std::size_t i = 0;
    while (i < kept && (i == 0 || before < static_cast<double>(p.top_p) * total)) before += weight[order[i++]];
    kept = i;
  }
  std::vector<double> probability(n, 0.0);
  total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (weight[order[i]] < static_cast<double>(p.min_p)) continue;
    probability[order[i]] = weight[order[i]];
    total += weight[order[i]];
  }
  for (double& x : probability) x /= total;
  return probability;
}

// Inverts the cumulative distribution at the same random number. Draws that fall within 1e-5 of a step may differ by
// rounding and are not counted; there must be few.
void expect_inverse(CpuBackend& backend, const std::vector<float>& logits, const SampleParams& base,
                    std::size_t draws) {
  std::vector<SampleParams> params(draws, base);
  for (std::size_t i = 0; i < draws; ++i) params[i].step = i;
  const std::vector<std::int32_t> tokens = draw(backend, logits, params);
  const std::vector<double> probability = filtered(logits, base);
  std::vector<double> cumulative(probability.size());
  std::partial_sum(probability.begin(), probability.end(), cumulative.begin());
  std::size_t skipped = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const double u = uniform_at(base.seed, i);
    const auto low = std::upper_bound(cumulative.begin(), cumulative.end(), u - 1e-5) - cumulative.begin();
    const auto high = std::upper_bound(cumulative.begin(), cumulative.end(), u + 1e-5) - cumulative.begin();
    if (low != high) {
      ++skipped;
      continue;
    }
    ASSERT_EQ(tokens[i], low) << "vocabulary " << logits.size() << " temperature " << base.temperature << " top_k "
                              << base.top_k << " top_p " << base.top_p << " min_p " << base.min_p << " step " << i;
  }
  EXPECT_LT(static_cast<double>(skipped), 0.1 * static_cast<double>(draws) + 3);
}

TEST_P(SampleDistributionTest, InvertsTheCumulativeDistribution) {
  unsigned seed = 1;
  for (const std::size_t vocab : {3u, 16u, 1023u, 1024u, 1025u, 5000u}) {
    const std::vector<float> logits = normal_floats(vocab, seed, 3.0f);
    for (const float temperature : {0.3f, 1.0f, 1.7f}) {
      for (const std::int32_t top_k : {0, 2, 50, 3000}) {
        for (const auto& [top_p, min_p] :
             std::vector<std::pair<float, float>>{{1, 0}, {0.9f, 0}, {0.5f, 0.01f}, {1, 0.05f}}) {
          const SampleParams p{
              .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = ++seed};
          expect_inverse(backend_, logits, p, 40);
        }
      }
    }
  }
}

// A flat distribution: top_p has to look at most of a large vocabulary, and nothing stands out to cut by.
TEST_P(SampleDistributionTest, FlatLogitsOverALargeVocabulary) {
  std::vector<float> logits(100000, 0.25f);
  const std::vector<std::int32_t> tokens =
      draw(backend_, logits,
           std::vector<SampleParams>{{.temperature = 1.0f, .top_p = 0.5f, .seed = 1},
                                     {.temperature = 1.0f, .top_p = 0.5f, .seed = 2},
                                     {.temperature = 1.0f, .top_k = 30000, .seed = 3},
                                     {.temperature = 1.0f, .seed = 4}});
  EXPECT_NEAR(tokens[0], uniform_at(1, 0) * 50000, 1.5);  // the lower half by id
  EXPECT_NEAR(tokens[1], uniform_at(2, 0) * 50000, 1.5);
  EXPECT_NEAR(tokens[2], uniform_at(3, 0) * 30000, 1.5);
  EXPECT_NEAR(tokens[3], uniform_at(4, 0) * 100000, 1.5);
}

// Pearson's statistic over the tokens; 5 standard deviations above its mean would be chance once in millions.
TEST_P(SampleDistributionTest, FrequenciesMatchProbabilities) {
  const std::vector<float> logits = normal_floats(12, 10, 1.0f);
  for (const SampleParams& base : {SampleParams{.temperature = 0.8f, .seed = 11},
                                   SampleParams{.temperature = 1.3f, .top_k = 7, .top_p = 0.9f, .seed = 12}}) {
    const std::size_t draws = 40000;
    std::vector<SampleParams> params(draws, base);
    for (std::size_t i = 0; i < draws; ++i) {
      params[i].seed += i / 100;  // steps and seeds both vary
      params[i].step = i % 100;
    }
    std::vector<double> count(12, 0.0);
    for (const std::int32_t token : draw(backend_, logits, params)) ++count[static_cast<std::size_t>(token)];
    const std::vector<double> probability = filtered(logits, base);
    double statistic = 0;
    double freedom = -1;
    for (std::size_t i = 0; i < 12; ++i) {
      const double expected = probability[i] * static_cast<double>(draws);
      if (expected == 0) {
        EXPECT_EQ(count[i], 0) << i;
        continue;
      }
      statistic += (count[i] - expected) * (count[i] - expected) / expected;
      freedom += 1;
    }
    EXPECT_GE(freedom, 3);
    EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, SampleDistributionTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
