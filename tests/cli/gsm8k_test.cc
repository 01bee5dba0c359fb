#include "cli/gsm8k.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"

namespace sluice::cli {
namespace {

TEST(Gsm8k, TheLastRunOfDigitsCounts) {
  EXPECT_EQ(last_number("He has 3 boxes and 12 pens.\n#### 36"), "36");
  EXPECT_EQ(last_number("1,234 dollars"), "1234");
  EXPECT_EQ(last_number("the change is 10-5"), "5") << "a minus is not a sign";
  EXPECT_EQ(last_number("007"), "7");
  EXPECT_EQ(last_number("0"), "0");
  EXPECT_EQ(last_number("42 pens and nothing else"), "42");
  EXPECT_FALSE(last_number("no digits here").has_value());
  EXPECT_FALSE(last_number("").has_value());
}

TEST(Gsm8k, PromptPutsExamplesBeforeTheQuestion) {
  const std::vector<Question> shots = {{"q1?", "a1"}, {"q2?", "a2"}};
  EXPECT_EQ(few_shot_prompt(shots, {"q3?", "a3"}),
            "Question: q1?\nAnswer: a1\n\nQuestion: q2?\nAnswer: a2\n\nQuestion: q3?\nAnswer:");
  EXPECT_EQ(few_shot_prompt({}, {"q?", ""}), "Question: q?\nAnswer:");
}

TEST(Gsm8k, WilsonIntervalMatchesPublishedValues) {
  // Computed by hand from the formula: p = 0.9, n = 10, z = 1.96.
  const Interval i = wilson_interval(9, 10);
  EXPECT_NEAR(i.low, 0.5958, 1e-4);
  EXPECT_NEAR(i.high, 0.9821, 1e-4);
  EXPECT_NEAR(wilson_interval(512, 512).low, 0.99255, 1e-5);  // n / (n + z^2)
  EXPECT_NEAR(wilson_interval(512, 512).high, 1.0, 1e-12);
}

TEST(Gsm8k, RecordsNameFileAndLineInErrors) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "questions.jsonl";
  std::ofstream(path) << "{\"question\": \"q\", \"answer\": \"a 1\"}\n\n{\"question\": \"q\"}\n";
  try {
    read_questions(path);
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(e.what()).find("questions.jsonl:3: no field \"answer\""), std::string::npos) << e.what();
  }
  std::ofstream(path) << "{\"question\": \"q1\", \"answer\": \"a1\"}\n\n{\"answer\": \"a2\", \"question\": \"q2\"}";
  const auto questions = read_questions(path);
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[1].question, "q2");
  EXPECT_THROW(read_questions("/nonexistent"), Error);
}

}  // namespace
}  // namespace sluice::cli
