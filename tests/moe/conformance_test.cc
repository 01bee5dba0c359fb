// The conformance matrix of fused-moe-numerics 3.3 on the reference runner.
#include "moe/conformance.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "moe/conformance_properties.h"
#include "moe/reference_runner.h"

namespace sluice {
namespace {

using testing::ConformanceResult;
using testing::ConformanceRow;
using testing::PropertyCase;

// The reference needs about 1 ns for each, and so does the proof.
constexpr testing::ConformanceBudget kBudget{4'000'000, 4'000'000};

class Conformance : public ::testing::TestWithParam<ConformanceRow> {};

TEST_P(Conformance, StagedProof) {
  const auto runner = make_reference_runner(nullptr);
  const ConformanceResult result = testing::run_conformance(*runner, GetParam(), kBudget);
  EXPECT_TRUE(result.ok()) << result.text();
  EXPECT_EQ(result.run.hidden, GetParam().hidden);
  EXPECT_EQ(result.run.experts, GetParam().experts);
}

std::string row_name(const ::testing::TestParamInfo<ConformanceRow>& info) {
  std::string name = info.param.id;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Conformance, ::testing::ValuesIn(testing::conformance_rows()), row_name);

TEST(ConformanceTable, RowsAreDistinctAndSkippedOnesHaveAReason) {
  std::set<std::string> ids;
  for (const ConformanceRow& row : testing::conformance_rows()) EXPECT_TRUE(ids.insert(row.id).second) << row.id;
  for (const testing::SkippedRow& row : testing::skipped_rows()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.id;
    EXPECT_FALSE(row.reason.empty());
    std::printf("skipped %s: %s\n", row.id.c_str(), row.reason.c_str());
  }
}

// Nothing of the matrix is left out without a word.
TEST(ConformanceTable, EveryRowIsRunElsewhereOrSkipped) {
  std::string known;
  for (const ConformanceRow& row : testing::conformance_rows()) known += row.id + "\n";
  for (const auto& list : {testing::rows_elsewhere(), testing::skipped_rows()}) {
    for (const testing::SkippedRow& row : list) known += row.id + "\n";
  }
  for (const std::string& id : testing::matrix_ids()) EXPECT_NE(known.find(id), std::string::npos) << id;
}

TEST(ConformanceFuzz, E01) {
  const auto runner = make_reference_runner(nullptr);
  for (int i = 0; i < 27; ++i) {
    const ConformanceRow row = testing::fuzz_row(i);
    const ConformanceResult result = testing::run_conformance(*runner, row, kBudget, 100 + i);
    EXPECT_TRUE(result.ok()) << recipe_info(row.recipe).name << " " << result.text();
  }
}

TEST(ConformanceSizes, WidthsOfRanksAndExpertCounts) {
  const auto runner = make_reference_runner(nullptr);
  constexpr testing::ConformanceBudget kWhole{1'000'000'000, 1'000'000'000};
  for (const Recipe recipe : testing::all_recipes()) {
    for (const ConformanceRow& row : testing::size_rows(recipe)) {
      const ConformanceResult result = testing::run_conformance(*runner, row, kWhole);
      EXPECT_TRUE(result.ok()) << recipe_info(recipe).name << " " << result.text();
      EXPECT_EQ(result.run.intermediate, row.intermediate);
    }
  }
}

std::vector<PropertyCase> reference_cases() {
  std::vector<PropertyCase> cases;
  for (const Recipe recipe : testing::all_recipes()) {
    cases.push_back({recipe, "reference", [] { return std::shared_ptr<Runner>(make_reference_runner(nullptr)); }});
  }
  return cases;
}

}  // namespace
}  // namespace sluice

namespace sluice::testing {
INSTANTIATE_TEST_SUITE_P(Reference, ConformanceProperties, ::testing::ValuesIn(sluice::reference_cases()),
                         property_name);
}  // namespace sluice::testing
