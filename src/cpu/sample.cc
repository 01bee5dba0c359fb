#include "cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"
#include "cpu/sample_row.h"

namespace sluice::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Memory of one worker.
struct WorkerScratch {
  Scratch row;
  float* edited = nullptr;  // [V]
};

// One row: its logits as they are, and what they are measured against.
struct Row {
  const OpsKernels& kernels;
  const float* logits;  // [n]
  std::int64_t n;
  float max;  // infinite when a logit is
  Scratch scratch;

  RowSampler sampler() const { return {kernels, logits, n, max, scratch}; }
};

bool undecidable(float max) { return std::isnan(max) || max == -kInfinity; }

std::int64_t count_infinite(const Row& row) { return std::count(row.logits, row.logits + row.n, kInfinity); }

// Log-probabilities of a row. Logits of +infinity share all of it.
class Logprobs {
 public:
  explicit Logprobs(const Row& row) : max_(row.max) {
    log_total_ = max_ == kInfinity ? std::log(static_cast<double>(count_infinite(row))) : row.sampler().log_total();
  }
  float of(float logit) const {
    if (max_ == kInfinity) return logit == kInfinity ? static_cast<float>(-log_total_) : -kInfinity;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max_) - log_total_);
  }

 private:
  float max_;
  double log_total_;
};

std::int32_t choose(const Row& row, const SampleParams& params) {
  if (undecidable(row.max)) return -1;
  if (row.max == kInfinity && std::none_of(row.logits, row.logits + row.n, [](float x) { return std::isfinite(x); })) {
    return -1;
  }
  if (row.max == kInfinity || params.temperature < kGreedyTemperature) {
    return static_cast<std::int32_t>(row.kernels.find(row.logits, row.n, row.max));
  }
  return row.sampler().draw(params);
}

void edit(const SampleParams& params, float* logits, std::int64_t n) {
  for (std::int64_t i = 0; i < params.edit_count; ++i) {
    const LogitEdit& e = params.edits[i];
    if (e.token < 0 || e.token >= n) continue;
    float& x = logits[e.token];
    if (e.add == -kInfinity) {
      x = -kInfinity;
    } else {
      x = (x > 0 ? x / e.divisor : x * e.divisor) + e.add;
    }
  }
}

std::int32_t choose_edited(const Row& row, const SampleParams& params, float* edited) {
  if (params.edit_count == 0) return choose(row, params);
  std::copy(row.logits, row.logits + row.n, edited);
  edit(params, edited, row.n);
  return choose({row.kernels, edited, row.n, row.kernels.max_or_nan(edited, row.n), row.scratch}, params);
}

void write_top(const SampleArgs& args, std::int64_t r, const Row& row, const Logprobs& logprobs) {
  const std::int64_t count = std::min<std::int64_t>({args.params[r].top, args.top_width, row.n});
  if (count <= 0) return;
  RowSampler sampler = row.sampler();
  const Candidate* best = sampler.best(count);
  for (std::int64_t i = 0; i < count; ++i) {
    args.top_tokens[r * args.top_width + i] = best[i].id;
    args.top_logprobs[r * args.top_width + i] = logprobs.of(best[i].value);
  }
}

void sample_row(const SampleArgs& args, std::int64_t r, const OpsKernels& kernels, const WorkerScratch& scratch) {
  const SampleParams& params = args.params[r];
  const auto* logits = args.logits.row<float>(r);
  const Row row{kernels, logits, args.logits.cols, kernels.max_or_nan(logits, args.logits.cols), scratch.row};
  std::fill_n(args.top_tokens + r * args.top_width, args.top_width, -1);
  std::int32_t token = -1;
  if (!undecidable(row.max)) token = params.given >= 0 ? params.given : choose_edited(row, params, scratch.edited);
  args.tokens[r] = token;
  if (args.logprobs == nullptr) return;
  args.logprobs[r] = -kInfinity;
  if (token < 0) return;
  const Logprobs logprobs(row);
  args.logprobs[r] = logprobs.of(logits[token]);
  write_top(args, r, row, logprobs);
}

}  // namespace

void sample_rows(const SampleArgs& args, const OpsKernels& kernels, ThreadPool& pool, Workspace& workspace) {
  if (args.logits.dtype != DType::f32) {
    fail(ErrorCode::usage, "sampling from " + std::string(dtype_name(args.logits.dtype)) + " logits", "f32");
  }
  const std::int64_t n = args.logits.cols;
  const Workspace::Scope scope(workspace);
  auto* candidates = workspace.take<Candidate>(pool.size() * n);
  auto* sums = workspace.take<double>(pool.size() * sample_blocks(n));
  auto* edited = workspace.take<float>(pool.size() * n);
  pool.parallel_for(args.logits.rows, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    const WorkerScratch scratch{{candidates + worker * n, sums + worker * sample_blocks(n)}, edited + worker * n};
    for (std::int64_t r = begin; r < end; ++r) sample_row(args, r, kernels, scratch);
  });
}

std::size_t sample_workspace_bytes(int threads, std::int64_t vocab) {
  const auto t = static_cast<std::size_t>(threads);
  const auto n = static_cast<std::size_t>(vocab);
  return Workspace::rounded_bytes(t * n * sizeof(Candidate)) +
         Workspace::rounded_bytes(t * static_cast<std::size_t>(sample_blocks(vocab)) * sizeof(double)) +
         Workspace::rounded_bytes(t * n * sizeof(float));
}

}  // namespace sluice::cpu
