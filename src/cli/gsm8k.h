// Few-shot evaluation on word problems in the GSM8K record format, scored as SGLang's few-shot test does it: the last
// number of the answer counts. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

struct Question {
  std::string question;
  std::string answer;
};

// One JSON object a line. Throws Error(bad_input) naming file and line.
std::vector<Question> read_questions(const std::string& path);

// Texts that end an answer.
const std::vector<std::string>& gsm8k_stops();

// "Question: ...\nAnswer: ...\n\n" for each example, then the question and "Answer:".
std::string few_shot_prompt(const std::vector<Question>& shots, const Question& question);

// The last run of digits of a text after all commas are dropped, without leading zeros; nothing when there is none.
// Signs and fractions do not count, as in SGLang's test, so that scores compare.
std::optional<std::string> last_number(std::string_view text);

struct Interval {
  double low = 0, high = 0;
};
// 95 % interval of a share (Wilson score).
Interval wilson_interval(std::int64_t hits, std::int64_t trials);

}  // namespace sluice::cli
