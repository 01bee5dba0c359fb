#include "cli/session.h"

#include <fmt/core.h>

#include "app/read_limit.h"
#include "cli/flags.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kDefaultSequences = 16;
constexpr std::int64_t kServedSequences = 64;

}  // namespace

std::string start_line(const app::ModelFacts& f) {
  const double gbps = f.load_seconds > 0 ? static_cast<double>(f.file_bytes) / f.load_seconds * 1e-9 : 0;
  return fmt::format(
      "{}: {} parameters, {}, {:.1f} bits a weight | recipe {}, runner {} | {}{} | KV {} a token{}, {} for {} tokens{} "
      "({}) "
      "| "
      "loaded in {:.3f} s, {:.2f} GB/s",
      f.architecture, human_count(static_cast<double>(f.parameters)), human_bytes(static_cast<double>(f.file_bytes)),
      f.bits_per_weight, f.recipe, f.runner, f.device, f.ranks.empty() ? "" : " | " + f.ranks,
      human_bytes(static_cast<double>(f.kv_bytes_per_token)), f.ranks.empty() ? "" : " and rank",
      human_bytes(static_cast<double>(f.kv_bytes)), f.kv_bytes / std::max<std::int64_t>(f.kv_bytes_per_token, 1),
      f.dp > 1 ? fmt::format(" in each of {} groups", f.dp) : "", f.kv_reason, f.load_seconds, gbps);
}

Options with_command_defaults(const Options& given) {
  Options o = given;
  if (o.command == "serve" && o.max_running_requests == 0) o.max_running_requests = kServedSequences;
  if (o.command == "eval.gsm8k") o.max_running_requests = o.parallel;
  return o;
}

app::ParallelChoice parallel_choice(const Options& o) {
  app::ParallelRequest r;
  r.tp = static_cast<std::int32_t>(o.tp);
  r.ep = static_cast<std::int32_t>(o.ep);
  r.dp = static_cast<std::int32_t>(o.dp);
  r.enable_dp_attention = o.enable_dp_attention;
  r.a2a = o.moe_a2a_backend;
  r.dense_tp = static_cast<std::int32_t>(o.moe_dense_tp_size);
  r.moe_dp = static_cast<std::int32_t>(o.moe_dp_size);
  r.backend = o.moe_runner_backend;
  r.deepep_mode = o.deepep_mode;
  return app::choose_parallel(r);
}

app::LoadOptions load_options(const Options& o) {
  app::LoadOptions load;
  const app::ParallelChoice parallel = parallel_choice(o);
  load.dtype = o.dtype;
  load.moe_runner_backend = o.moe_runner_backend;
  load.recipe = o.recipe;
  load.quantization = o.quantization;
  load.mxfp4_precision = o.mxfp4_precision;
  load.disable_shared_experts_fusion = o.disable_shared_experts_fusion;
  load.enforce_shared_experts_fusion = o.enforce_shared_experts_fusion;
  load.upstream_gate_alpha = o.upstream_gate_alpha;
  load.notes = sglang_notes(o.sglang);
  load.notes.insert(load.notes.end(), parallel.notes.begin(), parallel.notes.end());
  load.parallel = parallel.sizes;
  load.world = o.world;
  load.rank_wait_seconds = o.dist_timeout;
  load.plain_rows = o.plain_rows;
  load.a2a = o.moe_a2a_backend;
  load.deepep_mode = o.deepep_mode;
  load.isa = o.isa;
  load.scale_policy = o.scale_policy;
  load.threads = thread_count(o.threads);
  load.trace = o.trace;
  load.row_invariant = o.row_invariant();
  load.engine.max_batch_tokens = std::max<std::int64_t>(o.chunked_prefill_size, 0);
  load.engine.max_sequences = o.max_running_requests > 0 ? o.max_running_requests : kDefaultSequences;
  load.engine.context_length = o.context_length;
  load.engine.kv_tokens = o.max_total_tokens;
  load.engine.prefix_cache = !o.disable_radix_cache;
  load.engine.policy = engine::parse_schedule_policy(o.schedule_policy);
  load.mem_fraction_static = o.mem_fraction_static;
  return load;
}

app::LoadedModel open_session(const Options& options, Terminal& terminal) {
  const app::LoadOptions load = load_options(options);
  return app::load_model(app::open_model(options.model, load, terminal.log()), terminal.progress(), terminal.log());
}

void show_start_line(const app::LoadedModel& model, Terminal& terminal) { terminal.note(start_line(model.facts)); }

app::LoadedModel load_session(const Options& options, Terminal& terminal) {
  app::LoadedModel model = open_session(options, terminal);
  show_start_line(model, terminal);
  return model;
}

void check_prompt(const app::LoadedModel& model, const std::vector<std::int32_t>& prompt) {
  for (const std::int32_t id : prompt) {
    if (id < model.opened.config.vocab) continue;
    fail(ErrorCode::bad_input, fmt::format("{}: the tokenizer makes token id {}", model.opened.path, id),
         fmt::format("less than vocab_size {} of config.json", model.opened.config.vocab),
         "get tokenizer.json and config.json of the same model");
  }
}

engine::Sampling sampling_of(const Options& o, const ckpt::GenerationConfig& g) {
  engine::Sampling s;
  const bool sampled = g.do_sample.value_or(false);
  // Without flags, an unset temperature of a sampling model is 1 and its top_k 50, as in transformers.
  s.temperature = static_cast<float>(o.temperature >= 0 ? o.temperature : sampled ? g.temperature.value_or(1.0) : 0.0);
  const bool from_model = sampled && o.temperature < 0;
  s.top_k = static_cast<std::int32_t>(o.top_k >= 0 ? o.top_k : from_model ? g.top_k.value_or(50) : 0);
  s.top_p = static_cast<float>(o.top_p >= 0 ? o.top_p : from_model ? g.top_p.value_or(1.0) : 1.0);
  s.min_p = static_cast<float>(o.min_p >= 0 ? o.min_p : from_model ? g.min_p.value_or(0.0) : 0.0);
  s.seed = static_cast<std::uint64_t>(o.seed);
  s.repetition_penalty =
      static_cast<float>(o.repetition_penalty > 0 ? o.repetition_penalty : g.repetition_penalty.value_or(1.0));
  s.presence_penalty = static_cast<float>(o.presence_penalty);
  s.frequency_penalty = static_cast<float>(o.frequency_penalty);
  return s;
}

std::vector<std::string> stop_strings_of(const Options& o, const ckpt::GenerationConfig& g) {
  if (o.ignore_eos) return o.stop;
  std::vector<std::string> stops = g.stop_strings;
  stops.insert(stops.end(), o.stop.begin(), o.stop.end());
  return stops;
}

std::vector<std::int32_t> stop_ids_of(const Options& o, const ckpt::GenerationConfig& g) {
  if (o.ignore_eos) return {};
  return {g.eos_token_ids.begin(), g.eos_token_ids.end()};
}

AnswerStream::AnswerStream(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
                           const text::HarmonyTokens* harmony)
    : decoder_(tokenizer, /*skip_special=*/true), matcher_(stop_strings) {
  if (harmony != nullptr) harmony_.emplace(tokenizer, *harmony);
}

std::string AnswerStream::match(const std::string& piece) {
  std::string certain = matcher_.push(piece);
  stopped_ = matcher_.found();
  return certain;
}

std::string AnswerStream::decode(std::int32_t token) {
  if (!harmony_) return decoder_.push(token);
  const bool shown = text::is_for_user(harmony_->current());
  const std::string text = harmony_->push(token);
  return shown ? text : "";
}

std::string AnswerStream::rest() {
  if (!harmony_) return decoder_.flush();
  const bool shown = text::is_for_user(harmony_->current());
  const std::string text = harmony_->finish();
  return shown ? text : "";
}

std::string AnswerStream::push(std::int32_t token) { return match(decode(token)); }

std::string AnswerStream::finish() {
  if (stopped_) return "";
  std::string text = match(rest());
  if (!stopped_) text += matcher_.flush();
  return text;
}

Answer generate(engine::Engine& engine, const app::LoadedModel& model, engine::Request request,
                const std::vector<std::string>& stop_strings, const std::function<bool(const std::string&)>& show,
                const text::HarmonyTokens* harmony) {
  AnswerStream stream(*model.tokenizer, stop_strings, harmony);
  const std::vector<std::int32_t> stop_ids = request.stop_ids;
  const engine::RequestId id = engine.submit(std::move(request));
  Answer answer;
  const auto emit = [&](const std::string& piece) {
    answer.text += piece;
    return show(piece);
  };
  while (answer.finish == engine::FinishReason::none) {
    const std::vector<engine::Event> events = engine.step();
    if (events.empty() && !show("")) {  // a long prompt takes many steps without a token
      engine.cancel(id);
      answer.finish = engine::FinishReason::cancelled;
    }
    for (const engine::Event& event : events) {
      if (event.finish == engine::FinishReason::error)
        fail(ErrorCode::check_failed, model.opened.path + ": " + event.error);
      answer.finish = event.finish;
      if (event.token < 0 || event.finish == engine::FinishReason::stop) continue;  // an end token is not shown
      ++answer.tokens;
      const bool go_on = emit(stream.push(event.token));
      if (!stream.stopped() && go_on) continue;
      engine.cancel(id);
      answer.finish = stream.stopped() ? engine::FinishReason::stop : engine::FinishReason::cancelled;
    }
  }
  emit(stream.finish());
  return answer;
}

std::string end_line(const app::LoadedModel& model, const engine::EngineStats& s) {
  const auto rate = [](double amount, double seconds) { return seconds > 0 ? amount / seconds : 0.0; };
  const double decode_gbps = rate(static_cast<double>(s.decode_weight_bytes), s.decode_seconds) * 1e-9;
  const double limit_gbps = app::read_limit_gbps(model);
  return fmt::format(
      "prefill {} tokens, {:.0f} tok/s | decode {} tokens, {:.0f} tok/s, {:.1f} GB/s of weights, {:.0f} % of the "
      "{:.1f} "
      "GB/s at which this machine reads as much",
      s.prefill_tokens, rate(static_cast<double>(s.prefill_tokens), s.prefill_seconds), s.decode_tokens,
      rate(static_cast<double>(s.decode_tokens), s.decode_seconds), decode_gbps,
      limit_gbps > 0 ? 100 * decode_gbps / limit_gbps : 0.0, limit_gbps);
}

}  // namespace sluice::cli
