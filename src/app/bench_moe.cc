#include "app/bench_moe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "app/bench_ceilings.h"
#include "app/bench_layer.h"
#include "core/error.h"
#include "cpu/runner_cpu.h"
#include "moe/reference_runner.h"
#include "numerics/distance.h"
#include "numerics/tolerance.h"

namespace sluice::app {
namespace {

constexpr int kLeastRepetitions = 7;
constexpr std::int64_t kCheckedRows = 2;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// The runners differ in the order of additions only. That may send the rounding of an intermediate or of a slot row to
// the neighbouring bf16 number: twice the unit roundoff, on two rounding points.
double error_bound() {
  constexpr double kNeighbour = 2.0 * tolerance::unit_roundoff(DType::bf16);
  return tolerance::compound({kNeighbour, kNeighbour});
}

// One repetition with the ceilings measured around it.
struct Sample {
  double seconds = 0;
  double active_experts = 0;
  double bytes = 0;
  double operations = 0;
  Ceilings ceilings;

  double memory_seconds() const { return bytes / (ceilings.read_gb_per_s * 1e9); }
  double compute_seconds() const { return operations / (ceilings.peak_gflop_per_s * 1e9); }
  double floor_seconds() const { return std::max(memory_seconds(), compute_seconds()); }
};

class Bench {
 public:
  explicit Bench(const MoeBenchOptions& options)
      : options_(options),
        pool_(options.threads > 0 ? options.threads : available_processors()),
        runner_(cpu::make_cpu_runner(pool_, options.isa)),
        reference_(make_reference_runner(&pool_)),
        layer_(options.shape, options.seed, options.recipe),
        meter_(pool_, cpu::gemm_kernels(options.isa)) {}

  MoeBenchResult run(const ProgressSink& progress) {
    MoeBenchResult result;
    result.shape = options_.shape;
    result.machine = describe(cpu::detect_features(), options_.isa);
    result.isa = std::string(isa_name(options_.isa));
    result.recipe = options_.recipe;
    result.threads = pool_.size();
    result.error_bound = error_bound();
    const double begin = now();
    prepared_ = runner_->prepare(layer_.problem(), layer_.weights());
    result.prepare_seconds = now() - begin;
    result.resident_bytes = prepared_->resident_bytes();
    reference_prepared_ = reference_->prepare(layer_.problem(), layer_.weights());
    const auto total = options_.tokens.size();
    for (std::size_t i = 0; i <= total; ++i) {
      if (progress) progress({"bench moe", "points", i, total});
      if (i < total) result.points.push_back(point(options_.tokens[i]));
    }
    return result;
  }

 private:
  MoeBenchPoint point(std::int64_t tokens) {
    if (tokens < 1) fail(ErrorCode::usage, "token count " + std::to_string(tokens), "1 or more");
    MoeBatch batch = layer_.batch(tokens);
    MoeScratch scratch(*runner_, layer_.problem(), tokens);
    MoeBenchPoint p;
    p.tokens = tokens;
    check(batch, scratch, p);
    std::vector<Sample> samples;
    const double begin = now();
    Ceilings before = meter_.measure();
    while (static_cast<int>(samples.size()) < kLeastRepetitions || now() - begin < options_.seconds) {
      layer_.route(batch);
      Sample s = sample(batch, scratch);
      const Ceilings after = meter_.measure();
      s.ceilings = {0.5 * (before.read_gb_per_s + after.read_gb_per_s),
                    0.5 * (before.peak_gflop_per_s + after.peak_gflop_per_s)};
      before = after;
      samples.push_back(s);
    }
    summarise(samples, p);
    return p;
  }

  Sample sample(const MoeBatch& batch, MoeScratch& scratch) const {
    const MoeShape& shape = options_.shape;
    const double matrices = is_gated(shape.activation) ? 3.0 : 2.0;
    const double weights = matrices * static_cast<double>(shape.hidden * shape.intermediate);  // of one expert
    const double element = static_cast<double>(dtype_bytes(DType::bf16, 1));
    Sample s;
    s.active_experts = layer_.active_experts(batch);
    s.bytes = s.active_experts * layer_.expert_bytes() +
              2.0 * element * static_cast<double>(batch.tokens * shape.hidden);  // rows in and out
    s.operations = 2.0 * weights * layer_.local_routes(batch);
    const double begin = now();
    scratch.run(*runner_, *prepared_, batch, layer_.slots());
    s.seconds = now() - begin;
    return s;
  }

  void check(const MoeBatch& batch, MoeScratch& scratch, MoeBenchPoint& p) {
    scratch.run(*runner_, *prepared_, batch, layer_.slots());
    for (std::int64_t i = 0; i < std::min(kCheckedRows, batch.tokens); ++i) {
      const std::int64_t t = i == 0 ? batch.tokens - 1 : i * batch.tokens / kCheckedRows - 1;
      MoeScratch one(*reference_, layer_.problem(), 1);
      one.run(*reference_, *reference_prepared_, batch.row(t), layer_.slots());
      p.error = std::max(p.error, relative_l2(scratch.row(t), one.row(0)));
      ++p.checked_rows;
    }
    require_correct(p.error, error_bound(), p.tokens);
  }

  static void summarise(const std::vector<Sample>& samples, MoeBenchPoint& p) {
    const auto each = [&](auto field) {
      std::vector<double> values;
      for (const Sample& s : samples) values.push_back(field(s));
      return values;
    };
    const auto mean = [&](auto field) {
      const std::vector<double> values = each(field);
      return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    };
    const std::vector<double> seconds = each([](const Sample& s) { return s.seconds; });
    p.repetitions = static_cast<int>(samples.size());
    p.median_us = median(seconds) * 1e6;
    p.min_us = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
    p.active_experts = mean([](const Sample& s) { return s.active_experts; });
    p.bytes = mean([](const Sample& s) { return s.bytes; });
    p.operations = mean([](const Sample& s) { return s.operations; });
    p.gb_per_s = p.bytes / p.median_us * 1e-3;
    p.gflop_per_s = p.operations / p.median_us * 1e-3;
    p.read_gb_per_s = median(each([](const Sample& s) { return s.ceilings.read_gb_per_s; }));
    p.peak_gflop_per_s = median(each([](const Sample& s) { return s.ceilings.peak_gflop_per_s; }));
    const Sample typical{0, p.active_experts, p.bytes, p.operations, {p.read_gb_per_s, p.peak_gflop_per_s}};
    p.floor_us = typical.floor_seconds() * 1e6;
    p.memory_bound = typical.memory_seconds() >= typical.compute_seconds();
    p.percent_of_floor = 100.0 * median(each([](const Sample& s) { return s.floor_seconds() / s.seconds; }));
  }

  MoeBenchOptions options_;
  ThreadPool pool_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Runner> reference_;
  BenchLayer layer_;
  CeilingMeter meter_;
  std::unique_ptr<PreparedExperts> prepared_;
  std::unique_ptr<PreparedExperts> reference_prepared_;
};

}  // namespace

MoeBenchResult bench_moe(const MoeBenchOptions& options, const ProgressSink& progress) {
  return Bench(options).run(progress);
}

}  // namespace sluice::app
