// What the two ways of `eval gsm8k` share: the questions, the score, and the report. With a loaded model it is eval.cc,
// over HTTP eval_remote.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/gsm8k.h"
#include "cli/options.h"

namespace sluice::cli {

inline constexpr std::int64_t kEvalNewTokens = 512;

struct EvalTask {
  std::vector<Question> shots;
  std::vector<Question> questions;
};

struct EvalResult {
  std::int64_t questions = 0;
  std::int64_t right = 0;
  std::int64_t invalid = 0;  // answers without any number
  std::int64_t generated_tokens = 0;
  std::int64_t preemptions = 0;
  double seconds = 0;
  std::vector<std::string> answers;  // in the order of the questions
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(questions); }
};

// Reads questions and examples. Throws Error(usage) when there are fewer than asked for.
EvalTask read_task(const Options& options);

// Counts and keeps an answer.
void score_answer(const std::string& text, const EvalTask& task, std::size_t question, EvalResult& result);

// Prints, writes --json and the line for $GITHUB_STEP_SUMMARY. Returns the exit code: 1 unless above --threshold.
int report_eval(const Options& options, const std::string& model, const EvalResult& result);

}  // namespace sluice::cli
