// POST /v1/completions: fields > Ask.
#include <fmt/core.h>

#include <array>

#include "server/api_error.h"
#include "server/openai.h"

namespace sluice::server {
namespace {

constexpr std::int64_t kMostLogprobs = 20;
constexpr std::int64_t kDefaultNewTokens = 16;

Prompt text_prompt(const Json& text, const Fields& body, const ServedModel& m) {
  const std::string& prompt = text.as_string("prompt");
  const bool add_special = body.flag("add_special_tokens").value_or(true);
  return {encode(m, prompt, add_special, /*parse_special=*/true, "prompt"), prompt};
}

Prompt id_prompt(const Json::Array& list, const Fields& body, const ServedModel& m) {
  std::vector<std::int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_int()) body.bad("prompt", fmt::format("found {} among token ids", id.type_name()));
    ids.push_back(id.as_int("prompt"));
  }
  return {checked_ids(m, ids, "prompt"), ""};
}

std::vector<Prompt> read_prompts(const Fields& body, const ServedModel& m) {
  const Json* field = body.find("prompt");
  if (field == nullptr) body.bad("prompt", "missing; expected a string, a list of token ids, or a list of either");
  if (field->is_string()) return {text_prompt(*field, body, m)};
  if (!field->is_array() || field->as_array("prompt").empty()) {
    body.bad("prompt", "expected a string, a list of token ids, or a list of either");
  }
  const Json::Array& list = field->as_array("prompt");
  if (list.front().is_int()) return {id_prompt(list, body, m)};
  if (list.size() > kMostPrompts) body.bad("prompt", fmt::format("{} prompts; at most {}", list.size(), kMostPrompts));
  std::vector<Prompt> prompts;
  for (const Json& entry : list) {
    if (entry.is_string()) {
      prompts.push_back(text_prompt(entry, body, m));
    } else if (entry.is_array()) {
      prompts.push_back(id_prompt(entry.as_array("prompt"), body, m));
    } else {
      body.bad("prompt", fmt::format("found {} in the list", entry.type_name()));
    }
  }
  return prompts;
}

// Older clients send logprobs: true.
std::optional<std::int64_t> logprobs_of(const Fields& body) {
  const Json* field = body.find("logprobs");
  if (field != nullptr && field->is_bool()) {
    if (!field->as_bool("logprobs")) return std::nullopt;
    return 0;
  }
  return body.integer("logprobs", 0, kMostLogprobs);
}

}  // namespace

Ask read_completion(const Json& json, const ServedModel& m, Random& random) {
  const Fields body(json);
  Ask ask;
  ask.model = checked_model(body, m);
  refuse_unsupported(body);
  refuse_chat_fields(body);
  refuse_all(body, std::array{"messages", "input_ids"}, "stands beside prompt; expected one of them");
  refuse_all(body, std::array{"sampling_params"}, "is a field of /generate; here its fields stand in the body itself");
  ask.id = read_id(body, "cmpl-", random);
  ask.created = unix_time();
  ask.n = body.integer("n", 1, kMostAnswers).value_or(1);
  refuse_best_of(body, ask.n);
  read_sampling(body, m, random, ask);
  read_scheduling(body, ask);
  read_stream(body, ask);
  ask.echo = body.flag("echo").value_or(false);
  const auto logprobs = logprobs_of(body);
  ask.logprobs = logprobs.has_value();
  ask.request.top_logprobs = static_cast<std::int32_t>(logprobs.value_or(0));
  ask.request.prompt_logprobs = ask.logprobs && ask.echo;
  ask.request.prompt_top_logprobs = ask.request.prompt_logprobs ? ask.request.top_logprobs : 0;
  ask.prompts = read_prompts(body, m);
  read_lengths(body, m, kDefaultNewTokens, ask);
  return ask;
}

}  // namespace sluice::server
