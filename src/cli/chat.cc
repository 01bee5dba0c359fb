// sluice chat: a conversation in the terminal, rendered by the model's own chat template, or in the harmony format when
// the tokeniser has its control tokens.
#include <fmt/core.h>

#include <csignal>
#include <ctime>
#include <iostream>

#include "app/ranks.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kDefaultNewTokens = 512;

// Ctrl-C ends the answer, not the chat. Set by the signal handler, which can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) { interrupted = 1; }

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART, so that waiting for a line ends too
}

Json message(std::string_view role, const std::string& content) {
  return Json(Json::Object{{"role", Json(role)}, {"content", Json(content)}});
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

bool show_piece(const std::string& piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  return std::fflush(stdout) == 0 && interrupted == 0;
}

class Chat {
 public:
  Chat(const Options& options, const app::LoadedModel& model)
      : options_(options),
        model_(model),
        harmony_(text::harmony_tokens(*model.tokenizer)),
        engine_(model.make_engine()) {
    clear();
  }

  void clear() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
  }

  void answer(const std::string& line) {
    const Json::Array before = messages_;
    messages_.push_back(message("user", line));
    try {
      messages_.push_back(message("assistant", reply()));
    } catch (...) {
      messages_ = before;
      throw;
    }
    show_piece("\n");
  }

  std::optional<std::string> spelled(std::optional<std::int32_t> id) const {
    if (!id) return std::nullopt;
    return std::string(model_.tokenizer->token(*id));
  }

  const engine::EngineStats& stats() const { return engine_->stats(); }

 private:
  // The conversation so far, up to the opening of the assistant's turn.
  std::vector<std::int32_t> prompt() const {
    if (harmony_) {
      text::HarmonyOptions harmony;
      harmony.current_date = today();
      return text::encode_harmony(text::render_harmony(Json(messages_), harmony), *model_.tokenizer);
    }
    text::ChatOptions chat;
    chat.add_generation_prompt = true;
    chat.bos_token = spelled(model_.tokenizer->bos_id());
    chat.eos_token = spelled(model_.tokenizer->eos_id());
    return model_.tokenizer->encode(model_.chat_template->render(Json(messages_), chat), /*add_special_tokens=*/false,
                                    /*parse_special=*/true);
  }

  std::string reply() {
    engine::Request request;
    request.prompt = prompt();
    check_prompt(model_, request.prompt);
    request.max_new_tokens = options_.max_new_tokens >= 0 ? options_.max_new_tokens : kDefaultNewTokens;
    request.stop_ids = stop_ids_of(options_, model_.generation);
    if (harmony_ && !options_.ignore_eos) {
      request.stop_ids.insert(request.stop_ids.end(), {harmony_->returns, harmony_->call});
    }
    request.sampling = sampling_of(options_, model_.generation);
    interrupted = 0;
    return generate(*engine_, model_, std::move(request), stop_strings_of(options_, model_.generation), show_piece,
                    harmony_ ? &*harmony_ : nullptr)
        .text;
  }

  const Options& options_;
  const app::LoadedModel& model_;
  std::optional<text::HarmonyTokens> harmony_;  // when the tokeniser has them, the format of prompts and answers
  std::unique_ptr<engine::Engine> engine_;
  Json::Array messages_;
};

// One turn; a message that is too long for the context is told and dropped, the chat goes on.
void turn(Chat& chat, const std::string& line) {
  try {
    chat.answer(line);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::usage) throw;
    say(printable(e.what()) + "\n/clear starts anew");
  }
}

}  // namespace

int chat_command(const Options& options) {
  Terminal terminal(options.quiet);
  const app::LoadedModel model = load_session(options, terminal);
  if (model.chat_template == nullptr && !text::harmony_tokens(*model.tokenizer)) {
    fail(ErrorCode::unsupported, options.model + " has no chat template",
         "chat_template.jinja or tokenizer_config.json with one", "use `sluice run` with a plain prompt");
  }
  Chat chat(options, model);
  catch_interrupts();
  const bool prompted = app::input_is_typed();
  if (prompted) terminal.note("Type a message. /clear starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer.");
  std::string line;
  while (true) {
    if (prompted) std::fputs("> ", stderr);
    if (!std::getline(std::cin, line)) break;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line == "/exit") break;
    if (line == "/clear") {
      chat.clear();
    } else if (!line.empty()) {
      turn(chat, line);
    }
  }
  terminal.note("\n" + end_line(model, chat.stats()));
  return 0;
}

}  // namespace sluice::cli
