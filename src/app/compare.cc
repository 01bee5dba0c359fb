#include "app/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "app/sequence_runner.h"
#include "app/statistics.h"
#include "core/error.h"

namespace sluice::app {
namespace {

double log_sum_exp(const float* logits, std::int64_t vocab) {
  const double most = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(logits[v] - most);
  return most + std::log(sum);
}

std::int64_t likeliest(const float* logits, std::int64_t vocab) {
  return std::max_element(logits, logits + vocab) - logits;
}

class Distances {
 public:
  void add(const float* reference, const float* model, std::int64_t vocab, std::int32_t next) {
    const double kl = kl_divergence(reference, model, vocab);
    total_kl_ += kl;
    max_kl_ = worse(max_kl_, kl);
    logprobs_.push_back(
        std::abs(model[next] - log_sum_exp(model, vocab) - (reference[next] - log_sum_exp(reference, vocab))));
    same_ += likeliest(reference, vocab) == likeliest(model, vocab) ? 1 : 0;
  }

  ModelDistance result() const {
    ModelDistance d;
    d.tokens = std::ssize(logprobs_);
    if (d.tokens == 0) fail(ErrorCode::bad_input, "the texts have no tokens to compare", "texts of two tokens or more");
    const auto count = static_cast<double>(d.tokens);
    d.mean_kl = total_kl_ / count;
    d.max_kl = max_kl_;
    for (const double v : logprobs_) d.mean_logprob += v / count;
    d.p99_logprob = percentile99(logprobs_);
    d.same_top_token = static_cast<double>(same_) / count;
    return d;
  }

 private:
  double total_kl_ = 0;
  double max_kl_ = 0;
  std::int64_t same_ = 0;
  std::vector<double> logprobs_;
};

std::vector<std::int32_t> tokens_of(const LoadedModel& model, const LoadedModel& reference, const std::string& text) {
  std::vector<std::int32_t> ids = model.tokenizer->encode(text, true, false);
  if (ids != reference.tokenizer->encode(text, true, false)) {
    fail(ErrorCode::bad_input, "the two models cut a text into different tokens",
         "models with one and the same tokenizer");
  }
  return ids;
}

}  // namespace

double kl_divergence(const float* p, const float* q, std::int64_t vocab) {
  const double log_p = log_sum_exp(p, vocab);
  const double log_q = log_sum_exp(q, vocab);
  double kl = 0;
  for (std::int64_t v = 0; v < vocab; ++v) {
    const double lp = p[v] - log_p;
    kl += std::exp(lp) * (lp - (q[v] - log_q));
  }
  return kl;
}

ModelDistance compare_models(const LoadedModel& model, const LoadedModel& reference,
                             const std::vector<std::string>& texts, std::int64_t max_tokens,
                             const ProgressSink& progress) {
  const std::int64_t vocab = model.decoder->config().vocab;
  if (vocab != reference.decoder->config().vocab) {
    fail(ErrorCode::bad_input,
         fmt::format("vocabularies of {} and {} tokens", vocab, reference.decoder->config().vocab),
         "two versions of one model");
  }
  SequenceRunner run_model(*model.decoder, max_tokens, true);
  SequenceRunner run_reference(*reference.decoder, max_tokens, true);
  Distances distances;
  std::uint64_t done = 0;
  for (const std::string& text : texts) {
    if (progress) progress({"comparing", "texts", done++, texts.size()});
    std::vector<std::int32_t> ids = tokens_of(model, reference, text);
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(max_tokens)));
    if (ids.size() < 2) continue;
    const std::vector<float>& got = run_model.run(ids, nullptr, nullptr);
    const std::vector<float>& want = run_reference.run(ids, nullptr, nullptr);
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const std::size_t row = t * static_cast<std::size_t>(vocab);
      distances.add(want.data() + row, got.data() + row, vocab, ids[t + 1]);
    }
  }
  if (progress) progress({"comparing", "texts", texts.size(), texts.size()});
  return distances.result();
}

}  // namespace sluice::app
