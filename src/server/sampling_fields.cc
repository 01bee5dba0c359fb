#include "server/sampling_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "server/api_error.h"

namespace sluice::server {
namespace {

constexpr std::size_t kMostStops = 64;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::size_t kMostBiases = 1024;
constexpr double kMostTemperature = 100;
constexpr double kMostPenalty = 2;

void read_bias(const Fields& fields, const ServedModel& model, engine::Sampling& sampling) {
  const Json* field = fields.find("logit_bias");
  if (field == nullptr) return;
  if (!field->is_object()) fields.bad("logit_bias", "expected an object of token ids and numbers");
  const Json::Object& entries = field->as_object("logit_bias");
  if (entries.size() > kMostBiases) {
    fields.bad("logit_bias", fmt::format("{} entries; at most {}", entries.size(), kMostBiases));
  }
  for (const auto& [name, value] : entries) {
    std::int32_t token = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    if (!whole || token < 0 || token >= model.vocab || name != std::to_string(token)) {  // "05" would be "5" again
      fields.bad("logit_bias", fmt::format("\"{}\" is no token id in 0 to {}", name.substr(0, 40), model.vocab - 1));
    }
    if (!value.is_number() || !(value.as_number(name) >= -100 && value.as_number(name) <= 100)) {
      fields.bad("logit_bias", fmt::format("the bias of token {} is not in -100 to 100", token));
    }
    sampling.logit_bias.push_back({token, static_cast<float>(value.as_number(name))});
  }
}

void read_stops(const Fields& fields, const ServedModel& model, Ask& ask) {
  ask.request.ignore_eos = fields.flag("ignore_eos").value_or(false);
  ask.request.eos_ids = model.eos_ids;
  for (const std::int64_t id : fields.integers("stop_token_ids", kMostStops)) {
    if (id < 0 || id >= model.vocab) fields.bad("stop_token_ids", fmt::format("{} is no token", id));
    ask.request.stop_ids.push_back(static_cast<std::int32_t>(id));
  }
  ask.rules.stops = fields.texts("stop", kMostStops);
  for (const std::string& stop : ask.rules.stops) {
    if (stop.empty() || stop.size() > kMostStopBytes) {
      fields.bad("stop", fmt::format("a stop string has 1 to {} bytes", kMostStopBytes));
    }
  }
  if (!ask.request.ignore_eos) ask.rules.stops.insert(ask.rules.stops.end(), model.stops.begin(), model.stops.end());
  ask.rules.skip_special = fields.flag("skip_special_tokens").value_or(true);
  ask.rules.keep_stop =
      fields.flag("include_stop_str_in_output").value_or(false) || fields.flag("no_stop_trim").value_or(false);
}

float real(const Fields& f, const char* name, double least, double most, double otherwise) {
  return static_cast<float>(f.number(name, least, most).value_or(otherwise));
}

}  // namespace

void read_sampling(const Fields& f, const ServedModel& model, Random& random, Ask& ask) {
  engine::Sampling& s = ask.request.sampling;
  const SamplingDefaults& d = model.sampling;
  s.temperature = real(f, "temperature", 0, kMostTemperature, d.temperature);
  s.top_p = real(f, "top_p", 0, 1, d.top_p);
  if (f.find("top_p") != nullptr && s.top_p <= 0) f.bad("top_p", "expected more than 0, at most 1");
  s.min_p = real(f, "min_p", 0, 1, d.min_p);
  const std::int64_t top_k = f.integer("top_k", -1, INT32_MAX).value_or(d.top_k);
  s.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));
  s.presence_penalty = real(f, "presence_penalty", -kMostPenalty, kMostPenalty, 0);
  s.frequency_penalty = real(f, "frequency_penalty", -kMostPenalty, kMostPenalty, 0);
  s.repetition_penalty = real(f, "repetition_penalty", 1e-3, 1e3, d.repetition_penalty);
  const auto sglang_seed = f.integer("sampling_seed", INT64_MIN, INT64_MAX);
  const auto seed = sglang_seed ? sglang_seed : f.integer("seed", INT64_MIN, INT64_MAX);
  s.seed = seed ? static_cast<std::uint64_t>(*seed) : random();
  read_bias(f, model, s);
  read_stops(f, model, ask);
}

void read_scheduling(const Fields& f, Ask& ask) {
  ask.request.priority = static_cast<std::int32_t>(f.integer("priority", -1'000'000, 1'000'000).value_or(0));
  // vLLM's name, and SGLang's.
  const std::string salt = f.text("cache_salt").value_or(""), key = f.text("extra_key").value_or("");
  if (salt.empty() && key.empty()) return;
  // Lengths first, so that no two pairs are written alike; 0 means none.
  ask.request.cache_salt =
      std::max<std::size_t>(std::hash<std::string>{}(fmt::format("{} {}{}", salt.size(), salt, key)), 1);
}

void read_least(const Fields& f, const char* name, Ask& ask) {
  const std::int64_t least = f.integer(name, 0, INT32_MAX).value_or(0);
  if (least > ask.request.max_new_tokens) {
    f.bad(name,
          fmt::format("{} is more than the {} tokens that the answer may have", least, ask.request.max_new_tokens));
  }
  ask.rules.least_tokens = ask.request.min_new_tokens = least;
}

void read_lengths(const Fields& f, const ServedModel& m, std::optional<std::int64_t> otherwise, Ask& ask) {
  const char* most = "max_tokens";
  std::optional<std::int64_t> asked = f.integer(most, 0, INT32_MAX);
  for (const char* name : {"max_completion_tokens", "max_new_tokens"}) {
    const auto other = f.integer(name, 0, INT32_MAX);
    if (!other) continue;
    if (asked && *other != *asked) f.bad(name, fmt::format("{} where {} is {}", *other, most, *asked));
    asked = other;
    most = name;
  }
  set_length(m, asked, otherwise, most, ask);
  const bool both = f.find("min_tokens") != nullptr && f.find("min_new_tokens") != nullptr;
  if (both) f.bad("min_new_tokens", "stands beside min_tokens; expected one of them");
  read_least(f, f.find("min_new_tokens") != nullptr ? "min_new_tokens" : "min_tokens", ask);
}

void refuse_all(const Fields& fields, std::span<const char* const> others, const char* why) {
  for (const char* name : others) {
    if (fields.find(name) != nullptr) fields.bad(name, why);
  }
}

void refuse_best_of(const Fields& f, std::int64_t n) {
  const auto best = f.integer("best_of", 1, INT32_MAX);
  if (best && *best != n) f.bad("best_of", "is not supported beside n: all answers are returned");
}

void refuse_chat_fields(const Fields& f) {
  for (const char* name : {"tools", "functions"}) f.refuse(name, "a prompt has none, only a chat");
}

void read_stream(const Fields& f, Ask& ask) {
  ask.stream = f.flag("stream").value_or(false);
  const Json* options = f.find("stream_options");
  if (options == nullptr) return;
  if (!ask.stream) f.bad("stream_options", "needs stream: true");
  const Fields fields(*options, "stream_options.");
  ask.include_usage = fields.flag("include_usage").value_or(false);
  ask.continuous_usage = ask.include_usage && fields.flag("continuous_usage_stats").value_or(false);
}

void set_length(const ServedModel& m, std::optional<std::int64_t> asked, std::optional<std::int64_t> otherwise,
                const char* param, Ask& ask) {
  std::int64_t room = m.longest;
  for (const Prompt& prompt : ask.prompts) {
    const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
    if (tokens == 0) throw ApiError(400, "the prompt is empty; expected at least one token", "prompt", "invalid_value");
    const std::int64_t least = asked.value_or(1) == 0 ? 0 : 1;
    if (tokens + least > m.longest || tokens + asked.value_or(0) > m.longest) {
      throw ApiError(400,
                     fmt::format("this model's maximum context length is {} tokens; the prompt has {} and {} new ones "
                                 "were asked for, {} in all",
                                 m.longest, tokens, asked.value_or(least), tokens + asked.value_or(least)),
                     tokens + least > m.longest ? "prompt" : param, "context_length_exceeded");
    }
    room = std::min(room, m.longest - tokens);
  }
  ask.request.max_new_tokens = asked ? *asked : std::min(otherwise.value_or(room), room);
}

std::string read_id(const Fields& f, const char* prefix, Random& random) {
  std::string id = f.text("rid").value_or("");
  return id.empty() ? new_id(prefix, random) : id;
}

std::string new_id(const char* prefix, Random& random) {
  const std::uint64_t high = random();
  return fmt::format("{}{:016x}{:016x}", prefix, high, random());
}

std::int64_t unix_time() { return static_cast<std::int64_t>(std::time(nullptr)); }

std::string checked_model(const Fields& fields, const ServedModel& model) {
  const std::string name = fields.text("model").value_or(model.name);
  if (name == model.name || name == "default" || name.empty()) return model.name;
  throw ApiError(404,
                 fmt::format("the model \"{}\" is not served here; there is \"{}\"", name.substr(0, 200), model.name),
                 "model", "model_not_found");
}

}  // namespace sluice::server
