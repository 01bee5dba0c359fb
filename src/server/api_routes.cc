// The routes that generate or turn text into tokens and back.
#include <fmt/core.h>

#include "server/api_error.h"
#include "server/api_server.h"
#include "server/generate.h"
#include "server/json_text.h"
#include "server/openai.h"

namespace sluice::server {
namespace {

constexpr std::size_t kMostIds = std::size_t{1} << 20;

// An empty answer: that a token was generated is all there is to know.
class HealthReply : public Reply {
 public:
  void part(std::string&, const Job&, std::size_t, const Delta&) override {}
  void tail(std::string&, const Job&) override {}
  std::string whole(const Job&) override { return "{}"; }
};

Json ids_json(const std::vector<std::int32_t>& ids) {
  Json::Array list;
  for (const std::int32_t id : ids) list.emplace_back(static_cast<std::int64_t>(id));
  return Json(std::move(list));
}

}  // namespace

void ApiServer::completions(const Exchange& exchange) {
  ++metrics_.requests;
  Ask ask = read_completion(parse_body(exchange->request().body), *served_, random_);
  jobs_.start(
      std::move(ask), [this](const Job& job) { return completion_reply(job, *served_); }, exchange);
}

void ApiServer::chat_completions(const Exchange& exchange) {
  ++metrics_.requests;
  Ask ask = read_chat(parse_body(exchange->request().body), *served_, random_);
  jobs_.start(
      std::move(ask), [this](const Job& job) { return chat_reply(job, *served_); }, exchange);
}

void ApiServer::generate(const Exchange& exchange) {
  ++metrics_.requests;
  Ask ask = read_generate(parse_body(exchange->request().body), *served_, random_);
  jobs_.start(
      std::move(ask), [](const Job& job) { return generate_reply(job); }, exchange);
}

void ApiServer::health_generate(const Exchange& exchange) {
  Ask ask;
  ask.id = new_id("health-", random_);
  ask.prompts.push_back({{0}, ""});
  ask.request.max_new_tokens = 1;
  ask.request.priority = INT32_MAX;
  jobs_.start(
      std::move(ask), [](const Job&) { return std::make_unique<HealthReply>(); }, exchange);
}

void ApiServer::tokenize(const Exchange& exchange) {
  const Json json = parse_body(exchange->request().body);
  const Fields body(json);
  checked_model(body, *served_);
  std::vector<std::int32_t> ids;
  if (body.find("messages") != nullptr) {
    ids = render_chat(body, *served_).ids;
  } else {
    const auto prompt = body.text("prompt");
    const auto content = body.text("content");  // llama.cpp's name
    if (!prompt && !content) body.bad("prompt", "missing; expected a string, or messages");
    ids = encode(*served_, prompt ? *prompt : *content, body.flag("add_special_tokens").value_or(true), true, "prompt");
  }
  Json::Object out{{"tokens", ids_json(ids)},
                   {"count", Json(static_cast<std::int64_t>(ids.size()))},
                   {"max_model_len", Json(served_->context)}};
  if (body.flag("return_token_strs").value_or(false)) {
    Json::Array names;
    for (const std::int32_t id : ids) names.emplace_back(std::string(served_->tokenizer.token(id)));
    out.emplace_back("token_strs", Json(std::move(names)));
  }
  reply(exchange, 200, Json(std::move(out)).dump());
}

void ApiServer::detokenize(const Exchange& exchange) {
  const Json json = parse_body(exchange->request().body);
  const Fields body(json);
  checked_model(body, *served_);
  if (body.find("tokens") == nullptr) body.bad("tokens", "missing; expected a list of token ids");
  const auto ids = checked_ids(*served_, body.integers("tokens", kMostIds), "tokens");
  const std::string text = served_->tokenizer.decode(ids, body.flag("skip_special_tokens").value_or(true));
  // vLLM calls it prompt, SGLang text, llama.cpp content.
  reply(exchange, 200,
        Json(Json::Object{{"prompt", Json(text)}, {"text", Json(text)}, {"content", Json(text)}}).dump());
}

void ApiServer::apply_template(const Exchange& exchange) {
  const Json json = parse_body(exchange->request().body);
  const RenderedChat chat = render_chat(Fields(json), *served_);
  reply(exchange, 200, Json(Json::Object{{"prompt", Json(chat.text)}}).dump());
}

void ApiServer::flush_cache(const Exchange& exchange) {
  engine_.clear_prefix_cache();
  reply(exchange, 200, "{\"success\":true}");
}

void ApiServer::abort_request(const Exchange& exchange) {
  const Json json = parse_body(exchange->request().body);
  const Fields body(json);
  if (body.flag("abort_all").value_or(false)) {
    jobs_.abort_all();
  } else {
    const auto id = body.text("rid");
    if (!id) body.bad("rid", "missing; expected the id of a request");
    if (!jobs_.abort(*id)) throw ApiError(404, "no request has this id", "rid", "not_found");
  }
  reply(exchange, 200, "{\"success\":true}");
}

}  // namespace sluice::server
