// Row-invariance and repeatability of the CPU runner (architecture 4.5): a row's bits depend on nothing but the row.
#include <gtest/gtest.h>

#include "cpu/runner_harness.h"

namespace sluice::cpu {
namespace {

using sluice::testing::Batch;
using sluice::testing::concatenate;
using sluice::testing::OutputKind;
using sluice::testing::random_batch;
using sluice::testing::random_weights;
using sluice::testing::RoutePattern;
using sluice::testing::run_batch;
using sluice::testing::single_row;
using testing::make_problem;
using testing::Row;

// The slow units run the smallest sizes only; they share the code that cuts batches with the others.
bool is_slow(Isa isa) { return isa == Isa::scalar; }

class RunnerInvariance : public ::testing::TestWithParam<Isa> {
 protected:
  // Every row of the batch, computed alone.
  std::vector<Row> alone(const Runner& runner, const PreparedExperts& prepared, const Problem& problem,
                         const Batch& batch) {
    std::vector<Row> rows;
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      rows.push_back(run_batch(runner, prepared, problem, single_row(batch, t)));
    }
    return rows;
  }

  static Row row_of(const Row& output, std::int64_t t, std::int64_t width) {
    return Row(output.begin() + t * width, output.begin() + (t + 1) * width);
  }
};

// Rows alone against batches of 2, 8, 33, 64 and 300, at every position, with 1, 2 and 5 threads. K of GEMM1 is H, K of
// GEMM2 is I.
TEST_P(RunnerInvariance, BatchesPositionsThreads) {
  for (const std::int64_t k : {768, 2048, 2880, 7168}) {
    if (is_slow(GetParam()) && k != 768) continue;
    for (const bool first_gemm : {true, false}) {
      const Problem problem = first_gemm ? make_problem(k, 48, 4, 2) : make_problem(48, k, 4, 2);
      ThreadPool pool(2);
      const auto runner = make_cpu_runner(pool, GetParam());
      const auto prepared = runner->prepare(problem, random_weights({problem.layer}));
      const Batch all = random_batch(problem.layer, 300, DType::bf16, RoutePattern::zipf, 31);
      const std::vector<Row> want = alone(*runner, *prepared, problem, all);
      for (const int threads : {1, 2, 5}) {
        ThreadPool other(threads);
        const auto same = make_cpu_runner(other, GetParam());
        for (const std::int64_t tokens : {2, 8, 33, 64, 300}) {
          std::vector<Batch> rows;  // the last rows of `all`, in reverse, so that each stands elsewhere
          for (std::int64_t i = 0; i < tokens; ++i) rows.push_back(single_row(all, all.tokens - 1 - i));
          const Row output = run_batch(*same, *prepared, problem, concatenate(rows));
          for (std::int64_t i = 0; i < tokens; ++i) {
            ASSERT_EQ(row_of(output, i, problem.layer.width()), want[all.tokens - 1 - i])
                << "K " << k << (first_gemm ? " (H) " : " (I) ") << tokens << " tokens " << threads << " threads";
          }
        }
      }
    }
  }
}

// One row at each position of a batch that fills every block size on its way.
TEST_P(RunnerInvariance, EveryPosition) {
  const Problem problem = make_problem(768, 64, 1, 1);
  ThreadPool pool(2);
  const auto runner = make_cpu_runner(pool, GetParam());
  const auto prepared = runner->prepare(problem, random_weights({problem.layer}));
  const Batch all = random_batch(problem.layer, 28, DType::bf16, RoutePattern::uniform, 4);
  const std::vector<Row> want = alone(*runner, *prepared, problem, all);
  for (std::int64_t tokens = 1; tokens <= all.tokens; ++tokens) {
    const Batch part = random_batch(problem.layer, tokens, DType::bf16, RoutePattern::uniform, 4);
    const Row output = run_batch(*runner, *prepared, problem, part);
    for (std::int64_t t = 0; t < tokens; ++t) ASSERT_EQ(row_of(output, t, 768), want[t]) << t << " of " << tokens;
  }
}

TEST_P(RunnerInvariance, Repeatable) {
  Problem problem = make_problem(300, 200, 8, 4);
  problem.layer.has_bias = true;
  ThreadPool pool(3);
  const auto runner = make_cpu_runner(pool, GetParam());
  const auto prepared = runner->prepare(problem, random_weights({problem.layer}));
  const Batch batch = random_batch(problem.layer, 70, DType::bf16, RoutePattern::hot_one, 4);
  const Row first = run_batch(*runner, *prepared, problem, batch, {OutputKind::sum_bf16});
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(run_batch(*runner, *prepared, problem, batch, {OutputKind::sum_bf16}), first) << "run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RunnerInvariance, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

}  // namespace
}  // namespace sluice::cpu
