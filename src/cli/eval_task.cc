#include "cli/eval_task.h"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>

#include "cli/report.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

Json to_json(const Options& o, const std::string& model, const EvalResult& r) {
  const Interval interval = wilson_interval(r.right, r.questions);
  Json::Array answers(r.answers.begin(), r.answers.end());
  return Json(Json::Object{{"task", "gsm8k"},
                           {"model", Json(model)},
                           {"accuracy", Json(r.accuracy())},
                           {"accuracy_low_95", Json(interval.low)},
                           {"accuracy_high_95", Json(interval.high)},
                           {"questions", Json(r.questions)},
                           {"right", Json(r.right)},
                           {"invalid", Json(r.invalid)},
                           {"shots", Json(o.num_shots)},
                           {"generated_tokens", Json(r.generated_tokens)},
                           {"preemptions", Json(r.preemptions)},
                           {"seconds", Json(r.seconds)},
                           {"answers", Json(std::move(answers))}});
}

void write_step_summary(const std::string& line) {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == '\0') return;
  std::ofstream file(path, std::ios::app);
  file << line << "\n" << std::flush;
  if (!file) say(std::string("warning: the line for $GITHUB_STEP_SUMMARY could not be written to ") + path);
}

}  // namespace

EvalTask read_task(const Options& o) {
  EvalTask task;
  task.questions = read_questions(o.data);
  task.shots = o.shots.empty() ? task.questions : read_questions(o.shots);
  if (o.num_shots < 0 || o.num_shots > static_cast<std::int64_t>(task.shots.size())) {
    fail(ErrorCode::usage, fmt::format("--num-shots {}", o.num_shots), fmt::format("0 to {}", task.shots.size()));
  }
  task.shots.resize(static_cast<std::size_t>(o.num_shots));
  const auto available = static_cast<std::int64_t>(task.questions.size());
  if (o.num_questions < 0 || o.num_questions > available) {
    fail(ErrorCode::usage, fmt::format("--num-questions {}", o.num_questions), fmt::format("0 (all) to {}", available));
  }
  if (o.num_questions > 0) task.questions.resize(static_cast<std::size_t>(o.num_questions));
  return task;
}

void score_answer(const std::string& text, const EvalTask& task, std::size_t question, EvalResult& result) {
  const auto found = last_number(text);
  if (!found) ++result.invalid;
  if (found && found == last_number(task.questions[question].answer)) ++result.right;
  result.answers.resize(task.questions.size());
  result.answers[question] = text;
}

int report_eval(const Options& options, const std::string& model, const EvalResult& r) {
  const Interval interval = wilson_interval(r.right, r.questions);
  fmt::print(
      "accuracy {:.3f} ({} of {}; 95 % interval {:.3f} to {:.3f}), {} invalid, {:.0f} tokens/s generated in {:.1f} s\n",
      r.accuracy(), r.right, r.questions, interval.low, interval.high, r.invalid,
      static_cast<double>(r.generated_tokens) / r.seconds, r.seconds);
  if (!options.json.empty()) write_json(options.json, to_json(options, model, r));
  write_step_summary(fmt::format("| gsm8k | {} | {} shots | accuracy {:.3f} | {} invalid |", model, options.num_shots,
                                 r.accuracy(), r.invalid));
  if (options.threshold >= 0 && r.accuracy() <= options.threshold) {
    say(fmt::format("sluice: accuracy {:.4f} is not above the threshold {}", r.accuracy(), options.threshold));
    return static_cast<int>(ErrorCode::check_failed);
  }
  return 0;
}

}  // namespace sluice::cli
