// sluice eval gsm8k: asks all questions in parallel, scores, and compares with the threshold.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "cli/commands.h"
#include "cli/eval_task.h"
#include "cli/session.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

struct Prompts {
  std::vector<std::vector<std::int32_t>> ids;
  std::int64_t new_tokens = 0;
};

Prompts encode_prompts(const Options& o, const app::LoadedModel& model, const EvalTask& task) {
  Prompts prompts;
  prompts.new_tokens = o.max_new_tokens >= 0 ? o.max_new_tokens : kEvalNewTokens;
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
  Asker(const Options& options, const app::LoadedModel& model, const EvalTask& task, Prompts prompts)
      : model_(model),
        task_(task),
        prompts_(std::move(prompts)),
        engine_(model.make_engine()),
        parallel_(options.parallel) {
    stops_ = gsm8k_stops();
    stops_.insert(stops_.end(), model.generation.stop_strings.begin(), model.generation.stop_strings.end());
    stop_ids_ = stop_ids_of(options, model.generation);
    result_.questions = static_cast<std::int64_t>(task.questions.size());
  }

  EvalResult ask_all(const ProgressSink& progress) {
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

  void score(const Open& open) { score_answer(open.text, task_, open.question, result_); }

  const app::LoadedModel& model_;
  const EvalTask& task_;
  Prompts prompts_;
  std::unique_ptr<engine::Engine> engine_;
  std::int64_t parallel_;
  std::vector<std::string> stops_;
  std::vector<std::int32_t> stop_ids_;
  std::size_t next_ = 0;
  std::map<engine::RequestId, Open> open_;
  EvalResult result_;
};

}  // namespace

int eval_gsm8k_command(const Options& given) {
  if (!given.base_url.empty()) return eval_remote_command(given);
  const Options options = with_command_defaults(given);
  if (options.parallel < 1) fail(ErrorCode::usage, fmt::format("--parallel {}", options.parallel), "1 or more");
  if (options.model.empty()) fail(ErrorCode::usage, "no model", "MODEL, or --base-url URL of a server");
  Terminal terminal(options.quiet);
  const EvalTask task = read_task(options);
  app::LoadedModel model = open_session(options, terminal);
  Prompts prompts = encode_prompts(options, model, task);
  show_start_line(model, terminal);
  const EvalResult r = Asker(options, model, task, std::move(prompts)).ask_all(terminal.progress());
  return report_eval(options, options.model, r);
}

}  // namespace sluice::cli
