#include "cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/sample_random.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kBlock = 1024;  // weights of a block are summed in f32, the sums of blocks in f64
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tokens that may be drawn: logits above `value`, those equal to it with ids below `tie_end`, and of these the ones
// whose weight is at least min_weight times that of the most probable token.
struct Filter {
  float value = -kInfinity;
  std::int64_t tie_end = std::numeric_limits<std::int64_t>::max();
  float min_weight = 0;
};

std::int64_t block_count(std::int64_t n) { return (n + kBlock - 1) / kBlock; }

// Memory of one worker, for rows of up to n logits.
struct Scratch {
  Candidate* candidates = nullptr;  // [n]
  double* sums = nullptr;           // [blocks]
};

// One row while it is being decided. The weight of a logit is exp((logit - max) / temperature).
class RowSampler {
 public:
  RowSampler(const OpsKernels& kernels, const float* logits, std::int64_t n, float max, const Scratch& scratch)
      : kernels_(kernels), logits_(logits), n_(n), max_(max), scratch_(scratch) {}

  std::int32_t draw(const SampleParams& params);
  double log_total();  // log of the sum of weights of all tokens at temperature 1

 private:
  // Calls f(row, offset within the block) for the one or two parts of a block: ids below tie_end, and the others.
  template <class F>
  void for_parts(std::int64_t block, const Filter& filter, F f) const;
  double sum_blocks(const Filter& filter);
  std::int32_t invert(double target, const Filter& filter) const;

  Filter filter_of(const SampleParams& params);
  std::int64_t gather(float depth);
  std::int64_t best_count(std::int64_t count);
  std::int64_t best_mass(std::int64_t count, double mass, bool gathered);
  double mass_of(std::int64_t first, std::int64_t last) const;

  const OpsKernels& kernels_;
  const float* logits_;
  std::int64_t n_;
  float max_;
  Scratch scratch_;
  float inverse_temperature_ = 1.0f;
};

template <class F>
void RowSampler::for_parts(std::int64_t block, const Filter& filter, F f) const {
  const std::int64_t begin = block * kBlock;
  const std::int64_t end = std::min(begin + kBlock, n_);
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
  for (std::int64_t b = 0; b < block_count(n_); ++b) {
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
  for (; block < block_count(n_); ++block) {
    if (scratch_.sums[block] <= 0) continue;
    last_used = block;
    if (target < scratch_.sums[block]) break;
    target -= scratch_.sums[block];
  }
  float weights[kBlock];
  for_parts(last_used, filter,
            [&](const WeightRow& row, std::int64_t offset) { kernels_.weights(row, weights + offset); });
  const std::int64_t begin = last_used * kBlock;
  std::int64_t chosen = begin;
  for (std::int64_t i = 0; begin + i < n_ && i < kBlock; ++i) {
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

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
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

struct Choice {
  std::int32_t token = -1;
  float logprob = -kInfinity;
};

Choice choose_infinite(const OpsKernels& kernels, const float* logits, std::int64_t n) {
  std::int64_t infinite = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    infinite += logits[i] == kInfinity ? 1 : 0;
    finite += std::isfinite(logits[i]) ? 1 : 0;
  }
  if (finite == 0) return {};
  return {static_cast<std::int32_t>(kernels.find(logits, n, kInfinity)),
          static_cast<float>(-std::log(static_cast<double>(infinite)))};
}

Choice choose(const OpsKernels& kernels, const float* logits, std::int64_t n, const SampleParams& params,
              const Scratch& scratch, bool want_logprob) {
  const float max = kernels.max_or_nan(logits, n);
  if (std::isnan(max) || max == -kInfinity) return {};
  if (max == kInfinity) return choose_infinite(kernels, logits, n);
  RowSampler sampler(kernels, logits, n, max, scratch);
  Choice choice;
  if (params.temperature < kGreedyTemperature) {
    choice.token = static_cast<std::int32_t>(kernels.find(logits, n, max));
  } else {
    choice.token = sampler.draw(params);
  }
  if (want_logprob) {
    const double difference = static_cast<double>(logits[choice.token]) - static_cast<double>(max);
    choice.logprob = static_cast<float>(difference - sampler.log_total());
  }
  return choice;
}

}  // namespace

void sample_rows(const SampleArgs& args, const OpsKernels& kernels, ThreadPool& pool, Workspace& workspace) {
  if (args.logits.dtype != DType::f32) {
    fail(ErrorCode::usage, "sampling from " + std::string(dtype_name(args.logits.dtype)) + " logits", "f32");
  }
  const std::int64_t n = args.logits.cols;
  const Workspace::Scope scope(workspace);
  auto* candidates = workspace.take<Candidate>(pool.size() * n);
  auto* sums = workspace.take<double>(pool.size() * block_count(n));
  pool.parallel_for(args.logits.rows, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    const Scratch scratch{candidates + worker * n, sums + worker * block_count(n)};
    for (std::int64_t r = begin; r < end; ++r) {
      const Choice choice =
          choose(kernels, args.logits.row<float>(r), n, args.params[r], scratch, args.logprobs != nullptr);
      args.tokens[r] = choice.token;
      if (args.logprobs != nullptr) args.logprobs[r] = choice.logprob;
    }
  });
}

std::size_t sample_workspace_bytes(int threads, std::int64_t vocab) {
  const auto t = static_cast<std::size_t>(threads);
  return Workspace::rounded_bytes(t * static_cast<std::size_t>(vocab) * sizeof(Candidate)) +
         Workspace::rounded_bytes(t * static_cast<std::size_t>(block_count(vocab)) * sizeof(double));
}

}  // namespace sluice::cpu
