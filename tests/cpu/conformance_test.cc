// The conformance matrix of fused-moe-numerics 3.3 on the CPU runner: every row with the best instruction set of this
// machine; properties and random cases with every set (runner_recipes_test.cc has their widths).
#include "moe/conformance.h"

#include <gtest/gtest.h>

#include "cpu/runner_harness.h"
#include "moe/conformance_properties.h"

namespace sluice::cpu {
namespace {

using sluice::testing::ConformanceBudget;
using sluice::testing::ConformanceResult;
using sluice::testing::ConformanceRow;
using sluice::testing::PropertyCase;
using sluice::testing::recipe_test_name;

void prove(const Runner& runner, const ConformanceRow& row, const ConformanceBudget& budget, std::uint64_t seed = 42) {
  const ConformanceResult result = sluice::testing::run_conformance(runner, row, budget, seed);
  EXPECT_TRUE(result.ok()) << row.id << " " << recipe_info(row.recipe).name << " " << result.text();
}

class CpuConformance : public ::testing::TestWithParam<ConformanceRow> {};

TEST_P(CpuConformance, StagedProof) {
  ThreadPool pool(2);
  prove(*make_cpu_runner(pool, testing::available_isas().back()), GetParam(), {100'000'000, 1'000'000});
}

std::string row_name(const ::testing::TestParamInfo<ConformanceRow>& info) {
  std::string name = info.param.id;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Matrix, CpuConformance, ::testing::ValuesIn(sluice::testing::conformance_rows()), row_name);

TEST(CpuConformanceSizes, WidthsOfRanksAndExpertCounts) {
  ThreadPool pool(2);
  const auto runner = make_cpu_runner(pool, testing::available_isas().back());
  for (const Recipe recipe : sluice::testing::all_recipes()) {
    if (recipe == Recipe::f32) continue;
    for (const ConformanceRow& row : sluice::testing::size_rows(recipe)) prove(*runner, row, {1 << 30, 1 << 30});
  }
}

class CpuConformanceFuzz : public ::testing::TestWithParam<Isa> {};

TEST_P(CpuConformanceFuzz, E01) {
  ThreadPool pool(2);
  const auto runner = make_cpu_runner(pool, GetParam());
  const bool best = GetParam() == testing::available_isas().back();
  const std::int64_t run = best ? 20'000'000 : 2'000'000;
  for (int i = best ? 0 : 27; i < (best ? 27 : 36); ++i) {
    const ConformanceRow row = sluice::testing::fuzz_row(i);
    if (row.recipe != Recipe::f32) prove(*runner, row, {run, 500'000}, 100 + i);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuConformanceFuzz, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

// A runner with threads of its own.
std::shared_ptr<Runner> own_runner(Isa isa) {
  auto pool = std::make_shared<ThreadPool>(2);
  std::shared_ptr<Runner> runner = make_cpu_runner(*pool, isa);
  return {runner.get(), [pool, runner](Runner*) {}};
}

std::vector<PropertyCase> cpu_cases() {
  std::vector<PropertyCase> cases;
  for (const Isa isa : testing::available_isas()) {
    for (const Recipe recipe : sluice::testing::all_recipes()) {
      if (recipe == Recipe::f32) continue;
      cases.push_back({recipe, testing::isa_label(isa), [isa] { return own_runner(isa); }});
    }
  }
  return cases;
}

}  // namespace
}  // namespace sluice::cpu

namespace sluice::testing {
INSTANTIATE_TEST_SUITE_P(Cpu, ConformanceProperties, ::testing::ValuesIn(sluice::cpu::cpu_cases()), property_name);
}  // namespace sluice::testing
