#include "moe/selection.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "moe/reference_runner.h"

namespace sluice {
namespace {

// A runner that says what it is told to say.
class FakeRunner final : public Runner {
 public:
  FakeRunner(std::string name, Verdict verdict, Verdict for_f32 = Verdict::no("no f32"))
      : name_(std::move(name)), verdict_(std::move(verdict)), for_f32_(std::move(for_f32)) {}
  std::string_view name() const override { return name_; }
  Verdict supports(const Problem& p) const override { return p.recipe == Recipe::f32 ? for_f32_ : verdict_; }
  std::unique_ptr<PreparedExperts> prepare(const Problem& /*p*/, ExpertWeights&& /*w*/) const override {
    return nullptr;
  }
  void reload(PreparedExperts& /*p*/, ExpertWeights&& /*w*/) const override {}
  std::size_t workspace_bytes(const Problem& /*p*/, std::int64_t /*tokens*/) const override { return 0; }
  void run(const PreparedExperts& /*p*/, const RunArgs& /*args*/) const override {}

 private:
  std::string name_;
  Verdict verdict_, for_f32_;
};

struct Selecting : ::testing::Test {
  FakeRunner fast{"fast", Verdict::no("needs sm90")};
  FakeRunner cpu{"cpu", Verdict::yes()};
  FakeRunner slow{"slow", Verdict::yes(), Verdict::yes()};
  Problem problem;

  // Message of the error that select throws; its code goes into `code`.
  std::string refusal(const std::vector<const Runner*>& runners, std::string_view wanted, ErrorCode* code) {
    try {
      select_runner(runners, problem, wanted);
    } catch (const Error& error) {
      *code = error.code();
      return error.what();
    }
    return "nothing was thrown";
  }
};

TEST_F(Selecting, AutoTakesTheFirstThatFitsAndKeepsTheTable) {
  const Selection s = select_runner({&fast, &cpu, &slow}, problem, "auto");
  EXPECT_EQ(s.chosen, &cpu);
  ASSERT_EQ(s.table.size(), 3u);
  EXPECT_EQ(s.table[0].verdict.reason, "needs sm90");
  EXPECT_TRUE(s.table[2].verdict.ok);
  EXPECT_EQ(describe(s), "fast  no   needs sm90\ncpu   yes  chosen\nslow  yes\n");
}

TEST_F(Selecting, ANameIsObeyed) { EXPECT_EQ(select_runner({&fast, &cpu, &slow}, problem, "slow").chosen, &slow); }

TEST_F(Selecting, ARefusalListsAllCandidatesAndWhatWouldWork) {
  ErrorCode code{};
  const std::string named = refusal({&fast, &cpu}, "fast", &code);
  EXPECT_EQ(code, ErrorCode::unsupported);
  EXPECT_NE(named.find("fast  no   needs sm90"), std::string::npos) << named;
  EXPECT_NE(named.find("what would work: cpu"), std::string::npos) << named;

  const FakeRunner only_f32("slow", Verdict::no("has no bf16"), Verdict::yes());
  const std::string none = refusal({&fast, &only_f32}, "auto", &code);
  EXPECT_EQ(code, ErrorCode::unsupported);
  EXPECT_NE(none.find("needs sm90"), std::string::npos) << none;
  EXPECT_NE(none.find("has no bf16"), std::string::npos) << none;
  EXPECT_NE(none.find("recipe f32 on slow"), std::string::npos) << none;
}

TEST_F(Selecting, UnknownAndDoubleNamesAreUsageErrors) {
  ErrorCode code{};
  const std::string unknown = refusal({&cpu, &slow}, "marlin", &code);
  EXPECT_EQ(code, ErrorCode::usage);
  EXPECT_NE(unknown.find("marlin"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("cpu, slow"), std::string::npos) << unknown;
  EXPECT_NE(refusal({&cpu, &cpu}, "auto", &code).find("cpu is registered twice"), std::string::npos);
  EXPECT_EQ(code, ErrorCode::usage);
}

TEST(ReferenceSupports, SaysWhyNot) {
  const auto reference = make_reference_runner(nullptr);
  Problem problem;
  problem.layer.routing.top_k = 2;
  EXPECT_TRUE(reference->supports(problem).ok);
  problem.recipe = Recipe::nvfp4_w4a4_cutlass;
  EXPECT_TRUE(reference->supports(problem).ok);
  problem.recipe = Recipe::f32;
  problem.row_invariant = true;
  EXPECT_TRUE(reference->supports(problem).ok);
  problem.layer.weight_on_input = true;
  EXPECT_NE(reference->supports(problem).reason.find("k = 1"), std::string::npos);
  problem.layer.weight_on_input = false;
  problem.graph = true;
  EXPECT_FALSE(reference->supports(problem).ok);
  problem.graph = false;
  problem.device.kind = DeviceKind::cuda;
  EXPECT_NE(reference->supports(problem).reason.find("CPU"), std::string::npos);
}

}  // namespace
}  // namespace sluice
