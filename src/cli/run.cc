// sluice run: one answer after the other, streamed. Path of a token: run_command > Engine::step > Decoder::forward >
// MoeLayer::forward > Runner::run > kernel.
#include <fmt/core.h>

#include <iostream>
#include <iterator>

#include "cli/commands.h"
#include "cli/session.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kDefaultNewTokens = 256;

std::string read_all(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return read_file(path, {.what = "a readable text file", .regular = false});
}

std::vector<std::string> prompts_of(const Options& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) prompts.push_back(read_all(options.prompt_file));
  if (prompts.empty()) fail(ErrorCode::usage, "no prompt", "-p TEXT or -f FILE");
  for (const std::string& prompt : prompts) {
    if (prompt.empty()) fail(ErrorCode::usage, "the prompt is empty", "at least one character");
  }
  return prompts;
}

bool print_now(const std::string& piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  return std::fflush(stdout) == 0;  // a closed pipe ends the answer
}

}  // namespace

int run_command(const Options& options) {
  Terminal terminal(options.quiet);
  const std::vector<std::string> prompts = prompts_of(options);
  const app::LoadedModel model = load_session(options, terminal);
  const auto engine = model.make_engine();
  const auto stops = stop_strings_of(options, model.generation);
  for (const std::string& prompt : prompts) {
    terminal.note("\n" + prompt);
    engine::Request request;
    request.prompt = model.tokenizer->encode(prompt, /*add_special_tokens=*/true, /*parse_special=*/true);
    check_prompt(model, request.prompt);
    request.max_new_tokens = options.max_new_tokens >= 0 ? options.max_new_tokens : kDefaultNewTokens;
    request.stop_ids = stop_ids_of(options, model.generation);
    request.sampling = sampling_of(options, model.generation);
    const Answer answer = generate(*engine, model, std::move(request), stops, print_now);
    if (!print_now("\n")) return static_cast<int>(ErrorCode::resources);
    if (answer.finish == engine::FinishReason::length) terminal.note("(cut at the token limit; -n raises it)");
  }
  terminal.note("\n" + end_line(model, engine->stats()));
  return 0;
}

}  // namespace sluice::cli
