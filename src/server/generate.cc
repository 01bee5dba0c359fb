#include "server/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "server/api_error.h"
#include "server/json_text.h"
#include "server/openai.h"
#include "server/token_json.h"

namespace sluice::server {
namespace {

constexpr std::int64_t kDefaultNewTokens = 128;

void read_ids(const Fields& body, const ServedModel& m, Ask& ask) {
  const Json* field = body.find("input_ids");
  if (field == nullptr) body.bad("text", "missing; expected text or input_ids");
  if (!field->is_array() || field->as_array("input_ids").empty()) body.bad("input_ids", "expected a list of token ids");
  const Json::Array& list = field->as_array("input_ids");
  ask.batch = list.front().is_array();
  const auto add = [&](const Json& one) {
    const Json object(Json::Object{{"input_ids", one}});
    const auto ids = Fields(object).integers("input_ids", static_cast<std::size_t>(m.context) + 1);
    ask.prompts.push_back({checked_ids(m, ids, "input_ids"), ""});
  };
  if (!ask.batch) return add(*field);
  if (list.size() > kMostPrompts) {
    body.bad("input_ids", fmt::format("{} prompts; at most {}", list.size(), kMostPrompts));
  }
  for (const Json& one : list) add(one);
}

void read_prompts(const Fields& body, const ServedModel& m, Ask& ask) {
  const Json* text = body.find("text");
  if (text != nullptr && body.find("input_ids") != nullptr)
    body.bad("input_ids", "stands beside text; expected one of them");
  if (text == nullptr) return read_ids(body, m, ask);
  ask.batch = text->is_array();
  for (const std::string& prompt : body.texts("text", kMostPrompts)) {
    ask.prompts.push_back({encode(m, prompt, /*add_special=*/true, /*parse_special=*/true, "text"), prompt});
  }
  if (ask.prompts.empty()) body.bad("text", "an empty list");
}

void read_logprobs(const Fields& body, Ask& ask) {
  ask.logprobs = body.flag("return_logprob").value_or(false);
  const auto top = body.integer("top_logprobs_num", 0, engine::kMostTop).value_or(0);
  const std::int64_t start = body.integer("logprob_start_len", -1, INT32_MAX).value_or(-1);
  ask.text_in_logprobs = body.flag("return_text_in_logprobs").value_or(false);
  body.refuse("token_ids_logprob", "ask for top_logprobs_num");
  if (!ask.logprobs) return;
  ask.logprob_start = start;
  ask.request.top_logprobs = static_cast<std::int32_t>(top);
  ask.request.prompt_logprobs = start >= 0;
  ask.request.prompt_top_logprobs = start >= 0 ? ask.request.top_logprobs : 0;
  for (const Prompt& prompt : ask.prompts) {
    if (start < std::ssize(prompt.ids)) continue;
    body.bad("logprob_start_len",
             fmt::format("{} is behind the prompt, which has {} tokens", start, prompt.ids.size()));
  }
}

// SGLang's sampling_params are a closed set: it refuses other names too.
constexpr std::array<std::string_view, 29> kParameters = {"max_new_tokens",
                                                          "min_new_tokens",
                                                          "stop",
                                                          "stop_token_ids",
                                                          "stop_regex",
                                                          "temperature",
                                                          "top_p",
                                                          "top_k",
                                                          "min_p",
                                                          "frequency_penalty",
                                                          "presence_penalty",
                                                          "repetition_penalty",
                                                          "logit_bias",
                                                          "n",
                                                          "seed",
                                                          "sampling_seed",
                                                          "ignore_eos",
                                                          "skip_special_tokens",
                                                          "spaces_between_special_tokens",
                                                          "no_stop_trim",
                                                          "include_stop_str_in_output",
                                                          "json_schema",
                                                          "regex",
                                                          "ebnf",
                                                          "structural_tag",
                                                          "custom_params",
                                                          "stream_interval",
                                                          "use_beam_search",
                                                          "thinking_budget"};

// The parameters of all prompts, or of one.
void read_parameters(const Fields& sampling, const std::string& prefix, const ServedModel& m, Random& random,
                     Ask& ask) {
  refuse_unsupported(sampling);
  sampling.refuse_others(kParameters);
  ask.n = sampling.integer("n", 1, kMostAnswers).value_or(1);
  read_sampling(sampling, m, random, ask);
  const std::string longest = prefix + "max_new_tokens";
  set_length(m, sampling.integer("max_new_tokens", 0, INT32_MAX), kDefaultNewTokens, longest.c_str(), ask);
  read_least(sampling, "min_new_tokens", ask);
}

// One entry for each prompt.
void read_parameter_list(const Json::Array& list, const Fields& body, const ServedModel& m, Random& random, Ask& ask) {
  if (list.size() != ask.prompts.size() || !ask.batch) {
    body.bad("sampling_params",
             fmt::format("{} entries for {} prompts; expected an object, or a list with one for each "
                         "prompt of a list",
                         list.size(), ask.prompts.size()));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string prefix = fmt::format("sampling_params[{}].", i);
    Ask one;
    one.request = ask.request;
    one.prompts = {ask.prompts[i]};
    read_parameters(Fields(list[i], prefix), prefix, m, random, one);
    if (i > 0 && one.n != ask.n) body.bad("sampling_params", "n is not the same for all prompts");
    ask.n = one.n;
    ask.own.push_back({std::move(one.request), std::move(one.rules)});
  }
}

// What stands inside sampling_params, or is a name of OpenAI's for it.
constexpr std::array kInside = {"max_new_tokens",
                                "min_new_tokens",
                                "max_tokens",
                                "min_tokens",
                                "stop",
                                "max_completion_tokens",
                                "temperature",
                                "stop_token_ids",
                                "top_p",
                                "frequency_penalty",
                                "presence_penalty",
                                "repetition_penalty",
                                "top_k",
                                "logit_bias",
                                "min_p",
                                "n",
                                "seed",
                                "sampling_seed",
                                "ignore_eos",
                                "skip_special_tokens",
                                "no_stop_trim",
                                "include_stop_str_in_output"};

class GenerateReply : public Reply {
 public:
  GenerateReply(const Job& job, const ServedModel& model)
      : tokenizer_(job.ask.text_in_logprobs ? &model.tokenizer : nullptr),
        weight_version_(json_quoted(model.weight_version)) {}

  void part(std::string& out, const Job& job, std::size_t index, const Delta&) override {
    out += "data: ";
    append_answer(out, job, index);
    out += "\n\n";
  }
  void tail(std::string& out, const Job&) override { out += "data: [DONE]\n\n"; }

  std::string whole(const Job& job) override {
    const bool list = job.ask.batch || job.choices.size() > 1;
    std::string out = list ? "[" : "";
    for (std::size_t i = 0; i < job.choices.size(); ++i) {
      if (i > 0) out += ',';
      append_answer(out, job, i);
    }
    return list ? out + "]" : out;
  }

 private:
  static std::string finish_reason(const Choice& choice) {
    if (choice.open()) return "null";
    if (choice.finish == "length") return fmt::format("{{\"type\":\"length\",\"length\":{}}}", choice.tokens);
    if (choice.finish == "abort") return R"({"type":"abort","message":"the request was aborted"})";
    return "{\"type\":\"stop\",\"matched\":" + matched_stop(choice) + "}";
  }

  void append_answer(std::string& out, const Job& job, std::size_t index) const {
    const Choice& choice = job.choices[index];
    const Prompt& prompt = job.ask.prompts[choice.prompt];
    out += "{\"text\":";
    append_quoted(out, choice.content);
    out += ",\"output_ids\":[";
    for (const std::int32_t id : choice.ids) {
      if (out.back() != '[') out += ',';
      out += std::to_string(id);
    }
    out += ']';
    const double seconds = std::chrono::duration<double>(Clock::now() - job.received).count();
    fmt::format_to(std::back_inserter(out),
                   ",\"meta_info\":{{\"id\":{},\"finish_reason\":{},\"prompt_tokens\":{},\"completion_tokens\":{},"
                   "\"cached_tokens\":{},\"weight_version\":{},\"e2e_latency\":{:.6f}",
                   json_quoted(job.ask.id), finish_reason(choice), prompt.ids.size(), choice.tokens,
                   choice.cached_tokens, weight_version_, seconds);
    if (job.ask.logprobs) append_logprobs(out, job, choice);
    out += job.choices.size() > 1 ? fmt::format("}},\"index\":{}}}", index) : "}}";
  }

  void append_logprobs(std::string& out, const Job& job, const Choice& choice) const {
    const std::vector<std::int32_t>& ids = job.ask.prompts[choice.prompt].ids;
    const bool top = job.ask.request.top_logprobs > 0;
    out += ",\"input_token_logprobs\":[";
    const auto start = static_cast<std::size_t>(std::max<std::int64_t>(job.ask.logprob_start, 0));
    const bool prompt = job.ask.request.prompt_logprobs;
    if (prompt) append_generate_logprob(out, std::nullopt, ids[start], tokenizer_);  // the first of them has none
    for (std::size_t i = start; i < choice.prompt_logprobs.size(); ++i) {
      out += ',';
      append_generate_logprob(out, choice.prompt_logprobs[i], ids[i + 1], tokenizer_);
    }
    out += "],\"output_token_logprobs\":[";
    for (std::size_t i = 0; i < choice.notes.size(); ++i) {
      if (i > 0) out += ',';
      append_generate_logprob(out, choice.notes[i].logprob, choice.notes[i].token, tokenizer_);
    }
    out += ']';
    if (!top) return;
    out += prompt ? ",\"input_top_logprobs\":[null" : ",\"input_top_logprobs\":[";
    for (std::size_t i = start; i < choice.prompt_top.size(); ++i) append_top(out, choice.prompt_top[i]);
    out += "],\"output_top_logprobs\":[";
    for (const TokenNote& note : choice.notes) append_top(out, note.top);
    out += ']';
  }

  void append_top(std::string& out, const std::vector<engine::TokenLogprob>& top) const {
    if (out.back() != '[') out += ',';
    append_generate_top(out, top, tokenizer_);
  }

  const text::Tokenizer* tokenizer_;  // when texts are wanted
  std::string weight_version_;        // as JSON
};

}  // namespace

Ask read_generate(const Json& json, const ServedModel& m, Random& random) {
  const Fields body(json);
  refuse_unsupported(body);
  refuse_chat_fields(body);
  refuse_all(body, kInside,
             "belongs into sampling_params (max_tokens as max_new_tokens, min_tokens as min_new_tokens)");
  refuse_all(body, std::array{"prompt", "messages"}, "is a field of OpenAI's endpoints; expected text or input_ids");
  Ask ask;
  ask.model = m.name;
  ask.keep_ids = ask.cumulative = true;
  ask.id = read_id(body, "", random);
  ask.created = unix_time();
  ask.stream = body.flag("stream").value_or(false);
  read_prompts(body, m, ask);
  read_logprobs(body, ask);
  read_scheduling(body, ask);
  const Json none(Json::Object{});
  const Json* given = body.find("sampling_params");
  if (given != nullptr && given->is_array()) {
    read_parameter_list(given->as_array("sampling_params"), body, m, random, ask);
  } else {
    constexpr const char* kPrefix = "sampling_params.";
    read_parameters(Fields(given != nullptr ? *given : none, kPrefix), kPrefix, m, random, ask);
  }
  return ask;
}

std::unique_ptr<Reply> generate_reply(const Job& job, const ServedModel& model) {
  return std::make_unique<GenerateReply>(job, model);
}

}  // namespace sluice::server
