// sluice eval gsm8k: asks all questions in parallel, scores, and compares with the threshold.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>

#include "cli/commands.h"
#include "cli/gsm8k.h"
#include "cli/report.h"
#include "cli/session.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kDefaultNewTokens = 512;

struct Task {
  std::vector<Question> shots;
  std::vector<Question> questions;
};

struct Prompts {
  std::vector<std::vector<std::int32_t>> ids;
  std::int64_t new_tokens = 0;
};

struct Result {
  std::int64_t questions = 0;
  std::int64_t right = 0;
  std::int64_t invalid = 0;  // answers without any number
  std::int64_t generated_tokens = 0;
  std::int64_t preemptions = 0;
  double seconds = 0;
  std::vector<std::string> answers;  // in the order of the questions
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(questions); }
};

Task read_task(const Options& o) {
  Task task;
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

Prompts encode_prompts(const Options& o, const app::LoadedModel& model, const Task& task) {
  Prompts prompts;
  prompts.new_tokens = o.max_new_tokens >= 0 ? o.max_new_tokens : kDefaultNewTokens;
  for (const Question& question : task.questions) {
    prompts.ids.push_back(model.tokenizer->encode(few_shot_prompt(task.shots, question), /*add_special_tokens=*/true,
                                                  /*parse_special=*/true));
    check_prompt(model, prompts.ids.back());
  }
  return prompts;
}

// Keeps `parallel` questions in the engine until all are answered.
class Asker {
 public:
  Asker(const Options& options, const app::LoadedModel& model, const Task& task, Prompts prompts)
      : model_(model),
        task_(task),
        prompts_(std::move(prompts)),
        engine_(model.make_engine()),
        parallel_(options.parallel) {
    stops_ = gsm8k_stops();
    stops_.insert(stops_.end(), model.generation.stop_strings.begin(), model.generation.stop_strings.end());
    stop_ids_ = stop_ids_of(options, model.generation);
    result_.questions = static_cast<std::int64_t>(task.questions.size());
    result_.answers.resize(task.questions.size());
  }

  Result ask_all(const ProgressSink& progress) {
    const auto begin = std::chrono::steady_clock::now();
    const auto total = static_cast<std::uint64_t>(result_.questions);
    std::uint64_t done = 0;
    progress({"questions", "answered", 0, total});
    while (done < total) {
      while (next_ < task_.questions.size() && static_cast<std::int64_t>(open_.size()) < parallel_) submit(next_++);
      for (const engine::Event& event : engine_->step()) done += on_event(event) ? 1 : 0;
      progress({"questions", "answered", done, total});
    }
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result_.generated_tokens = engine_->stats().generated_tokens;
    result_.preemptions = engine_->stats().preemptions;
    return result_;
  }

 private:
  struct Open {
    std::size_t question;
    AnswerStream stream;
    std::string text;
  };

  void submit(std::size_t question) {
    engine::Request request;
    request.prompt = std::move(prompts_.ids[question]);
    request.max_new_tokens = prompts_.new_tokens;
    request.stop_ids = stop_ids_;
    const engine::RequestId id = engine_->submit(std::move(request));
    open_.emplace(id, Open{question, AnswerStream(*model_.tokenizer, stops_), ""});
  }

  // True when the event ended its question.
  bool on_event(const engine::Event& event) {
    if (event.finish == engine::FinishReason::error)
      fail(ErrorCode::check_failed, model_.opened.path + ": " + event.error);
    Open& open = open_.at(event.id);
    if (event.token >= 0 && event.finish != engine::FinishReason::stop) open.text += open.stream.push(event.token);
    if (event.finish == engine::FinishReason::none && !open.stream.stopped()) return false;
    if (event.finish == engine::FinishReason::none) engine_->cancel(event.id);
    open.text += open.stream.finish();
    score(open);
    open_.erase(event.id);
    return true;
  }

  void score(Open& open) {
    const auto found = last_number(open.text);
    if (!found) ++result_.invalid;
    if (found && found == last_number(task_.questions[open.question].answer)) ++result_.right;
    result_.answers[open.question] = std::move(open.text);
  }

  const app::LoadedModel& model_;
  const Task& task_;
  Prompts prompts_;
  std::unique_ptr<engine::Engine> engine_;
  std::int64_t parallel_;
  std::vector<std::string> stops_;
  std::vector<std::int32_t> stop_ids_;
  std::size_t next_ = 0;
  std::map<engine::RequestId, Open> open_;
  Result result_;
};

Json to_json(const Options& o, const Result& r) {
  const Interval interval = wilson_interval(r.right, r.questions);
  Json::Array answers(r.answers.begin(), r.answers.end());
  return Json(Json::Object{{"task", "gsm8k"},
                           {"model", Json(o.model)},
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

int eval_gsm8k_command(const Options& given) {
  Options options = given;
  if (options.parallel < 1) fail(ErrorCode::usage, fmt::format("--parallel {}", options.parallel), "1 or more");
  options.max_running_requests = options.parallel;
  Terminal terminal(options.quiet);
  const Task task = read_task(options);
  app::LoadedModel model = open_session(options, terminal);
  Prompts prompts = encode_prompts(options, model, task);
  show_start_line(model, terminal);
  const Result r = Asker(options, model, task, std::move(prompts)).ask_all(terminal.progress());
  const Interval interval = wilson_interval(r.right, r.questions);
  fmt::print(
      "accuracy {:.3f} ({} of {}; 95 % interval {:.3f} to {:.3f}), {} invalid, {:.0f} tokens/s generated in {:.1f} s\n",
      r.accuracy(), r.right, r.questions, interval.low, interval.high, r.invalid,
      static_cast<double>(r.generated_tokens) / r.seconds, r.seconds);
  if (!options.json.empty()) write_json(options.json, to_json(options, r));
  write_step_summary(fmt::format("| gsm8k | {} | {} shots | accuracy {:.3f} | {} invalid |", options.model,
                                 options.num_shots, r.accuracy(), r.invalid));
  if (options.threshold >= 0 && r.accuracy() <= options.threshold) {
    say(fmt::format("sluice: accuracy {:.4f} is not above the threshold {}", r.accuracy(), options.threshold));
    return static_cast<int>(ErrorCode::check_failed);
  }
  return 0;
}

}  // namespace sluice::cli
