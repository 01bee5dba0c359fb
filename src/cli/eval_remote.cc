// sluice eval gsm8k --base-url: the same questions and the same score, asked of any OpenAI-compatible server.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "cli/eval_task.h"
#include "cli/remote.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

// Keeps `parallel` questions open at the server until all are answered.
class RemoteAsker {
 public:
  RemoteAsker(const Options& options, const Remote& remote, const EvalTask& task, ProgressSink progress)
      : remote_(remote),
        task_(task),
        progress_(std::move(progress)),
        new_tokens_(options.max_new_tokens >= 0 ? options.max_new_tokens : kEvalNewTokens) {
    const std::int64_t calls = std::min<std::int64_t>(options.parallel, std::ssize(task.questions));
    for (std::int64_t i = 0; i < calls; ++i) {
      calls_.push_back(std::make_unique<RemoteCall>(loop_, remote, "/v1/completions"));
    }
    result_.questions = std::ssize(task.questions);
  }

  EvalResult ask_all() {
    const auto begin = std::chrono::steady_clock::now();
    progress_({"questions", "answered", 0, static_cast<std::uint64_t>(result_.questions)});
    for (const auto& call : calls_) ask_next(*call);
    loop_.run();
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result_;
  }

 private:
  std::string body_of(const Question& question) const {
    Json::Array stops;
    for (const std::string& stop : gsm8k_stops()) stops.emplace_back(stop);
    return Json(Json::Object{{"model", Json(remote_.model)},
                             {"prompt", Json(few_shot_prompt(task_.shots, question))},
                             {"max_tokens", Json(new_tokens_)},
                             {"temperature", Json(0)},
                             {"stop", Json(std::move(stops))}})
        .dump();
  }

  void ask_next(RemoteCall& call) {
    if (next_ >= task_.questions.size()) return;
    const std::size_t question = next_++;
    call.ask(body_of(task_.questions[question]), [this, &call, question](const RemoteCall::Answer& answer) {
      take(answer, question);
      ask_next(call);
    });
  }

  void take(const RemoteCall::Answer& answer, std::size_t question) {
    if (answer.status != 200) fail(ErrorCode::resources, "a question was not answered: " + error_text(answer));
    const Json body = Json::parse(answer.body, "answer");
    const Json* choices = body.find("choices");
    const Json* usage = body.find("usage");
    if (choices == nullptr || !choices->is_array() || choices->as_array("choices").empty()) {
      fail(ErrorCode::bad_input, "an answer has no choices", "a completion in OpenAI's form");
    }
    const Json* text = choices->as_array("choices").front().find("text");
    if (text == nullptr) fail(ErrorCode::bad_input, "a choice has no text", "a completion in OpenAI's form");
    score_answer(text->as_string("text"), task_, question, result_);
    const Json* tokens = usage == nullptr ? nullptr : usage->find("completion_tokens");
    if (tokens != nullptr) result_.generated_tokens += tokens->as_int("completion_tokens");
    progress_(
        {"questions", "answered", static_cast<std::uint64_t>(++done_), static_cast<std::uint64_t>(result_.questions)});
    if (done_ == result_.questions) loop_.stop();
  }

  const Remote& remote_;
  const EvalTask& task_;
  ProgressSink progress_;
  std::int64_t new_tokens_;
  http::Loop loop_;
  std::vector<std::unique_ptr<RemoteCall>> calls_;
  std::size_t next_ = 0;
  std::int64_t done_ = 0;
  EvalResult result_;
};

}  // namespace

int eval_remote_command(const Options& options) {
  Terminal terminal(options.quiet);
  const EvalTask task = read_task(options);
  const Remote remote = connect_remote(options);
  terminal.note(fmt::format("asking \"{}\" at {}, {} questions at a time", remote.model, options.base_url,
                            std::min<std::int64_t>(options.parallel, std::ssize(task.questions))));
  const EvalResult result = RemoteAsker(options, remote, task, terminal.progress()).ask_all();
  return report_eval(options, remote.model, result);
}

}  // namespace sluice::cli
