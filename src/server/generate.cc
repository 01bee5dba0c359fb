#include "server/generate.h"

#include <fmt/core.h>

#include <iterator>

#include "server/api_error.h"
#include "server/json_text.h"
#include "server/openai.h"
#include "server/token_json.h"

namespace sluice::server {
namespace {

constexpr std::int64_t kMostAnswers = 128;
constexpr std::int64_t kDefaultNewTokens = 128;
constexpr std::size_t kMostPrompts = 1024;

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
  for (const Json& one : list) add(one);
}

void read_prompts(const Fields& body, const ServedModel& m, Ask& ask) {
  const Json* text = body.find("text");
  if (text == nullptr) return read_ids(body, m, ask);
  ask.batch = text->is_array();
  for (const std::string& prompt : body.texts("text", kMostPrompts)) {
    ask.prompts.push_back({encode(m, prompt, /*add_special=*/true, /*parse_special=*/true, "text"), prompt});
  }
  if (ask.prompts.empty()) body.bad("text", "an empty list");
}

void read_logprobs(const Fields& body, Ask& ask) {
  ask.logprobs = body.flag("return_logprob").value_or(false);
  ask.request.top_logprobs =
      static_cast<std::int32_t>(body.integer("top_logprobs_num", 0, engine::kMostTop).value_or(0));
  const std::int64_t start = body.integer("logprob_start_len", -1, INT32_MAX).value_or(-1);
  ask.request.prompt_logprobs = ask.logprobs && start >= 0;
  ask.request.prompt_top_logprobs = ask.request.prompt_logprobs ? ask.request.top_logprobs : 0;
  if (!ask.logprobs) ask.request.top_logprobs = 0;
  body.refuse("token_ids_logprob", "ask for top_logprobs_num");
}

class GenerateReply : public Reply {
 public:
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
    return "{\"type\":\"stop\",\"matched\":" + matched_stop(choice) + "}";
  }

  static void append_answer(std::string& out, const Job& job, std::size_t index) {
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
                   "\"cached_tokens\":{},\"weight_version\":\"default\",\"e2e_latency\":{:.6f}",
                   json_quoted(job.ask.id), finish_reason(choice), prompt.ids.size(), choice.tokens, choice.cached_tokens,
                   seconds);
    if (job.ask.logprobs) append_logprobs(out, job, choice);
    out += job.choices.size() > 1 ? fmt::format("}},\"index\":{}}}", index) : "}}";
  }

  static void append_logprobs(std::string& out, const Job& job, const Choice& choice) {
    const std::vector<std::int32_t>& ids = job.ask.prompts[choice.prompt].ids;
    const bool top = job.ask.request.top_logprobs > 0;
    if (!choice.prompt_logprobs.empty()) {
      fmt::format_to(std::back_inserter(out), ",\"input_token_logprobs\":[[null,{},null]", ids.front());
      for (std::size_t i = 0; i < choice.prompt_logprobs.size(); ++i) {
        out += ',';
        append_generate_logprob(out, choice.prompt_logprobs[i], ids[i + 1]);
      }
      out += ']';
      if (top) append_tops(out, ",\"input_top_logprobs\":[null", choice.prompt_top);
    }
    out += ",\"output_token_logprobs\":[";
    for (std::size_t i = 0; i < choice.notes.size(); ++i) {
      if (i > 0) out += ',';
      append_generate_logprob(out, choice.notes[i].logprob, choice.notes[i].token);
    }
    out += ']';
    if (!top) return;
    std::vector<std::vector<engine::TokenLogprob>> tops;
    for (const TokenNote& note : choice.notes) tops.push_back(note.top);
    append_tops(out, ",\"output_top_logprobs\":[", tops);
  }

  static void append_tops(std::string& out, const char* opening,
                          const std::vector<std::vector<engine::TokenLogprob>>& tops) {
    out += opening;
    for (const auto& top : tops) {
      if (out.back() != '[') out += ',';
      append_generate_top(out, top);
    }
    out += ']';
  }
};

}  // namespace

Ask read_generate(const Json& json, const ServedModel& m, Random& random) {
  const Fields body(json);
  refuse_unsupported(body);
  Ask ask;
  ask.model = m.name;
  ask.keep_ids = ask.cumulative = true;
  const Json* rid = body.find("rid");
  ask.id = rid != nullptr && rid->is_string() ? rid->as_string("rid") : new_id("", random);
  ask.created = unix_time();
  ask.stream = body.flag("stream").value_or(false);
  const Json none(Json::Object{});
  const Json* given = body.find("sampling_params");
  const Fields sampling(given != nullptr ? *given : none, "sampling_params.");
  refuse_unsupported(sampling);
  ask.n = sampling.integer("n", 1, kMostAnswers).value_or(1);
  read_sampling(sampling, m, random, ask);
  read_logprobs(body, ask);
  read_prompts(body, m, ask);
  set_length(m, sampling.integer("max_new_tokens", 0, INT32_MAX), kDefaultNewTokens, "sampling_params.max_new_tokens",
             ask);
  ask.request.min_new_tokens = sampling.integer("min_new_tokens", 0, INT32_MAX).value_or(0);
  return ask;
}

std::unique_ptr<Reply> generate_reply(const Job&, const ServedModel&) { return std::make_unique<GenerateReply>(); }

}  // namespace sluice::server
