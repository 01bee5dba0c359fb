#include "cpu/sample_row.h"

#include <algorithm>
#include <cmath>

#include "cpu/sample_random.h"

namespace sluice::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

}  // namespace

template <class F>
void RowSampler::for_parts(std::int64_t block, const Filter& filter, F f) const {
  const std::int64_t begin = block * kSampleBlock;
  const std::int64_t end = std::min(begin + kSampleBlock, n_);
  const std::int64_t middle = std::clamp(filter.tie_end, begin, end);
  WeightRow row{.max = max_, .inverse_temperature = inverse_temperature_, .min_weight = filter.min_weight};
  row.x = logits_ + begin;
  row.n = middle - begin;
  row.cut = filter.value;
  if (row.n > 0) f(row, std::int64_t{0});
  row.x = logits_ + middle;
  row.n = end - middle;
  row.cut = std::nextafter(filter.value, kInfinity);
  if (row.n > 0) f(row, middle - begin);
}

double RowSampler::sum_blocks(const Filter& filter) {
  double total = 0;
  for (std::int64_t b = 0; b < sample_blocks(n_); ++b) {
    double sum = 0;
    for_parts(b, filter, [&](const WeightRow& row, std::int64_t) { sum += kernels_.weight_sum(row); });
    scratch_.sums[b] = sum;
    total += sum;
  }
  return total;
}

double RowSampler::log_total() {
  inverse_temperature_ = 1.0f;
  return std::log(sum_blocks(Filter{}));
}

// First token, in order of ids, at which the cumulative weight exceeds `target`. After sum_blocks with the same filter.
std::int32_t RowSampler::invert(double target, const Filter& filter) const {
  std::int64_t block = 0;
  std::int64_t last_used = 0;  // rounding may leave target at the very end
  for (; block < sample_blocks(n_); ++block) {
    if (scratch_.sums[block] <= 0) continue;
    last_used = block;
    if (target < scratch_.sums[block]) break;
    target -= scratch_.sums[block];
  }
  float weights[kSampleBlock];
  for_parts(last_used, filter,
            [&](const WeightRow& row, std::int64_t offset) { kernels_.weights(row, weights + offset); });
  const std::int64_t begin = last_used * kSampleBlock;
  std::int64_t chosen = begin;
  for (std::int64_t i = 0; begin + i < n_ && i < kSampleBlock; ++i) {
    if (weights[i] <= 0) continue;
    chosen = begin + i;
    if (target < weights[i]) break;
    target -= weights[i];
  }
  return static_cast<std::int32_t>(chosen);
}

// Candidates are all logits within `depth` temperatures of the best, in order of ids.
std::int64_t RowSampler::gather(float depth) {
  const float threshold = depth > 100.0f ? -kInfinity : max_ - depth / inverse_temperature_;
  const WeightRow row{
      .x = logits_, .n = n_, .max = max_, .inverse_temperature = inverse_temperature_, .cut = threshold};
  return kernels_.gather(row, scratch_.candidates);
}

double RowSampler::mass_of(std::int64_t first, std::int64_t last) const {
  double mass = 0;
  for (std::int64_t i = first; i < last; ++i) mass += static_cast<double>(scratch_.candidates[i].weight);
  return mass;
}

// Moves the `count` best tokens to the front of the candidates.
std::int64_t RowSampler::best_count(std::int64_t count) {
  float depth = 8.0f;  // most rows have what is wanted within a few; each round looks twice as deep
  std::int64_t gathered = gather(depth);
  while (gathered < count) gathered = gather(depth *= 2);
  Candidate* c = scratch_.candidates;
  if (count < gathered) std::nth_element(c, c + count, c + gathered, ranks_before);
  return count;
}

// Moves the fewest best tokens that have at least `mass` together to the front; at least one. The candidates are the
// first `count`, or still to be gathered.
std::int64_t RowSampler::best_mass(std::int64_t count, double mass, bool gathered) {
  for (float depth = 8.0f; !gathered; depth *= 2) {
    count = gather(depth);
    gathered = count == n_ || mass_of(0, count) >= mass;
  }
  Candidate* c = scratch_.candidates;
  std::int64_t low = 0;  // the answer is in (low, high]
  std::int64_t high = count;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    std::nth_element(c + low, c + middle, c + high, ranks_before);
    const double part = mass_of(low, middle);
    if (part >= mass) {
      high = middle;
    } else {
      mass -= part;
      low = middle;
    }
  }
  return high;
}

Filter RowSampler::filter_of(const SampleParams& params) {
  Filter filter{.min_weight = std::min(params.min_p, 1.0f)};
  const bool by_count = params.top_k > 0 && params.top_k < n_;
  const bool by_mass = params.top_p < 1.0f;
  if (!by_count && !by_mass) return filter;
  std::int64_t kept = by_count ? best_count(params.top_k) : 0;
  if (by_mass) {
    const double total = by_count ? mass_of(0, kept) : sum_blocks(Filter{});
    kept = best_mass(kept, static_cast<double>(params.top_p) * total, by_count);
  }
  const Candidate* c = scratch_.candidates;
  const Candidate& worst = *std::max_element(c, c + kept, ranks_before);
  filter.value = worst.value;
  filter.tie_end = worst.id + std::int64_t{1};
  return filter;
}

std::int32_t RowSampler::draw(const SampleParams& params) {
  inverse_temperature_ = 1.0f / std::min(params.temperature, std::numeric_limits<float>::max());
  const Filter filter = filter_of(params);
  const double total = sum_blocks(filter);
  return invert(uniform_at(params.seed, params.step) * total, filter);
}

const Candidate* RowSampler::best(std::int64_t count) {
  inverse_temperature_ = 1.0f;
  best_count(count);
  std::sort(scratch_.candidates, scratch_.candidates + count, ranks_before);
  return scratch_.candidates;
}

}  // namespace sluice::cpu
