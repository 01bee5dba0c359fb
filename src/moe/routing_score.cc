#include "moe/routing_score.h"

#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// sqrt(log(1 + exp(x))) without overflow, and without the loss of exp(x) below -87, whose root is still a normal
// number: below -20 log(1 + y) equals y in fp32.
float sqrt_softplus(float x) {
  if (x < -20.0f) return std::exp(0.5f * x);
  return std::sqrt((x > 0.0f ? x : 0.0f) + std::log1p(std::exp(-std::fabs(x))));
}

void softmax(const float* logits, std::int32_t experts, float* scores) {
  float top = kMinusInf;
  for (std::int32_t e = 0; e < experts; ++e) top = logits[e] > top ? logits[e] : top;
  float sum = 0.0f;
  for (std::int32_t e = 0; e < experts; ++e) {
    scores[e] = std::exp(logits[e] - top);
    sum += scores[e];
  }
  for (std::int32_t e = 0; e < experts; ++e) scores[e] /= sum;
}

float clean_key(float key) { return std::isnan(key) ? kMinusInf : key; }

}  // namespace

void clean_logits(const float* logits, std::int32_t experts, float* out) {
  bool empty = true;
  for (std::int32_t e = 0; e < experts; ++e) {
    const float x = clean_key(logits[e]);
    out[e] = x > std::numeric_limits<float>::max() ? std::numeric_limits<float>::max() : x;
    empty = empty && x == kMinusInf;
  }
  if (!empty) return;
  for (std::int32_t e = 0; e < experts; ++e) out[e] = 0.0f;
}

void score(Scoring scoring, const float* logits, std::int32_t experts, float* scores) {
  if (scoring == Scoring::softmax) return softmax(logits, experts, scores);
  for (std::int32_t e = 0; e < experts; ++e) {
    scores[e] = scoring == Scoring::sigmoid ? sigmoid(logits[e]) : sqrt_softplus(logits[e]);
  }
}

void largest(const float* keys, std::int32_t experts, const CandidateGroups& candidates, std::int32_t k,
             LogicalId* ids) {
  std::int32_t kept = 0;
  for (std::int32_t e = 0; e < experts; ++e) {
    if (candidates.keep != nullptr && !candidates.keep[e / candidates.group_size]) continue;
    const float key = clean_key(keys[e]);
    const auto kept_key = [&](std::int32_t s) { return clean_key(keys[raw(ids[s])]); };
    if (kept == k && !(key > kept_key(k - 1))) continue;
    // Ids come in ascending order, so a new one goes behind all that are at least as large.
    std::int32_t s = kept < k ? kept++ : k - 1;
    for (; s > 0 && key > kept_key(s - 1); --s) ids[s] = ids[s - 1];
    ids[s] = LogicalId{e};
  }
}

}  // namespace sluice
