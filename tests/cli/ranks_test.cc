// What ranks compare before they load.
#include "cli/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/version.h"
#include "cpu/features.h"

namespace sluice::cli {
namespace {

std::string value_of(const app::Facts& facts, const std::string& name) {
  const auto fact = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.first == name; });
  return fact == facts.end() ? "(absent)" : fact->second;
}

app::Facts facts_of_run() {
  Options options;
  options.command = "run";
  return rank_facts(options);
}

TEST(RankFacts, TheVersionIsThatOfTheBuildOnAnyProcessor) {
  const std::string version = value_of(facts_of_run(), "the version");
  EXPECT_EQ(version.find(app::version_number() + " ("), 0u) << version;
  const cpu::Features here = cpu::detect_features();
  for (const std::string& word : {here.processor, std::string(cpu::isa_name(cpu::choose_isa(here)))}) {
    EXPECT_TRUE(word.empty() || version.find(word) == std::string::npos) << version;
  }
}

TEST(RankFacts, HaveFlagsButNotThoseOfARankAlone) {
  const app::Facts facts = facts_of_run();
  EXPECT_EQ(value_of(facts, "the command"), "run");
  EXPECT_EQ(value_of(facts, "--chunked-prefill-size"), "512");
  EXPECT_EQ(value_of(facts, "--ep"), "1");
  for (const char* own : {"--isa", "--threads", "--model"}) EXPECT_EQ(value_of(facts, own), "(absent)") << own;
}

}  // namespace
}  // namespace sluice::cli
