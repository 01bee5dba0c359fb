// What the commands that generate share: a loaded model, its engine, and the way from token ids to shown text.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/parallel_choice.h"
#include "app/wiring.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "text/harmony.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace sluice::cli {

// What the flags about ranks come to. Throws Error when they do not go together.
app::ParallelChoice parallel_choice(const Options& options);
app::LoadOptions load_options(const Options& options);

// With the command's own default where a flag that sizes the engine was not given: alike on every rank.
Options with_command_defaults(const Options& options);

// Opens and loads; show_start_line prints what was loaded.
app::LoadedModel open_session(const Options& options, Terminal& terminal);
// Parameters, bytes, recipe and runner, KV cache, load time.
std::string start_line(const app::ModelFacts& facts);
void show_start_line(const app::LoadedModel& model, Terminal& terminal);
// Both, for commands whose KV cache does not depend on the model.
app::LoadedModel load_session(const Options& options, Terminal& terminal);

// Throws Error(bad_input) when the tokenizer made an id that the model has no embedding for.
void check_prompt(const app::LoadedModel& model, const std::vector<std::int32_t>& prompt);

// Flags first, then generation_config.json, then greedy.
engine::Sampling sampling_of(const Options& options, const ckpt::GenerationConfig& generation);

// Stop strings of the model and of --stop; empty with --ignore-eos.
std::vector<std::string> stop_strings_of(const Options& options, const ckpt::GenerationConfig& generation);
std::vector<std::int32_t> stop_ids_of(const Options& options, const ckpt::GenerationConfig& generation);

// Token ids in, text out: whole characters only, nothing that may still become a stop string, cut at the first one.
class AnswerStream {
 public:
  // With `harmony`, which must outlive the stream, thoughts and tool calls are left out.
  AnswerStream(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
               const text::HarmonyTokens* harmony = nullptr);

  std::string push(std::int32_t token);  // text that is now certain
  std::string finish();                  // the rest, once no token follows
  bool stopped() const { return stopped_; }

 private:
  std::string match(const std::string& piece);
  std::string decode(std::int32_t token);
  std::string rest();

  text::StreamDecoder decoder_;
  std::optional<text::HarmonyReader> harmony_;
  text::StopMatcher matcher_;
  bool stopped_ = false;
};

struct Answer {
  std::string text;
  engine::FinishReason finish = engine::FinishReason::none;
  std::int64_t tokens = 0;
};

// Generates one answer; `show` gets each piece of text as soon as it is certain, an empty one after every step without
// text, and says whether to go on.
Answer generate(engine::Engine& engine, const app::LoadedModel& model, engine::Request request,
                const std::vector<std::string>& stop_strings, const std::function<bool(const std::string&)>& show,
                const text::HarmonyTokens* harmony = nullptr);

// "prefill ... decode ..." of everything that the engine did, with the percentage of what this machine can read.
std::string end_line(const app::LoadedModel& model, const engine::EngineStats& stats);

}  // namespace sluice::cli
