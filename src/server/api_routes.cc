// The routes with a body: those that generate, or turn text into tokens and back. What reads a body runs on a worker.
#include <fmt/core.h>

#include <algorithm>

#include "server/api_error.h"
#include "server/api_server.h"
#include "server/generate.h"
#include "server/json_text.h"
#include "server/openai.h"
#include "server/routes.h"

namespace sluice::server {
namespace {

constexpr std::size_t kMostIds = std::size_t{1} << 20;
constexpr std::size_t kLengthyBody = std::size_t{32} << 10;  // bytes; read in a few milliseconds
constexpr std::size_t kMostBodies = 4;                       // of the largest size, that may wait to be read
constexpr std::size_t kMostAbortedEarly = 1024;
constexpr const char* kAborted = "the request was aborted";

// An empty answer: that a token was generated is all there is to know.
class HealthReply : public Reply {
 public:
  void part(std::string&, const Job&, std::size_t, const Delta&) override {}
  void tail(std::string&, const Job&) override {}
  std::string whole(const Job&) override { return "{}"; }
};

Json ids_json(const std::vector<std::int32_t>& ids) {
  Json::Array list;
  list.reserve(ids.size());
  for (const std::int32_t id : ids) list.emplace_back(static_cast<std::int64_t>(id));
  return Json(std::move(list));
}

}  // namespace

// A body waits for a worker, within limits; a long one in a queue of its own.
void ApiServer::read_body(const Route& route, const Exchange& exchange) {
  if (drain_over_) throw shutting_down();
  const std::size_t bytes = exchange->request().body.size();
  const std::size_t most_bytes = kMostBodies * options_.http.parser.body_bytes;
  if (std::ssize(readings_) >= jobs_.most_sequences() || reading_bytes_ + bytes > most_bytes) {
    throw ApiError(429,
                   fmt::format("{} requests of {} bytes wait to be read; at most {} and {} bytes do", readings_.size(),
                               reading_bytes_, jobs_.most_sequences(), most_bytes),
                   "", "queue_full");
  }
  auto reading = std::make_unique<Reading>(route.read, exchange, *served_, random_(), ++newest_reading_,
                                           [this](Reading& read) { on_read(read); });
  Reading* const key = reading.get();
  exchange->on_gone = [this, key] {
    key->forget();
    readings_.erase(key);
    forget_early_aborts();
  };
  readings_.insert(key);
  reading_bytes_ += bytes;
  workers_.post(bytes > kLengthyBody ? Workers::Lane::lengthy : Workers::Lane::brief, std::move(reading));
}

void ApiServer::on_read(Reading& reading) {
  reading_bytes_ -= reading.body_bytes();
  const bool expected = readings_.erase(&reading) > 0;
  const Exchange& exchange = reading.exchange();
  if (expected && exchange->open()) {
    exchange->on_gone = nullptr;
    if (reading.finish()) {
      guarded(exchange, [&] { reading.finish()(*this, reading); });
    } else {
      ++metrics_.responses[reading.refusal().status];
      exchange->respond(reading.refusal());
    }
  }
  forget_early_aborts();
}

void ApiServer::refuse_readings(int status, const std::string& why) {
  for (Reading* reading : std::exchange(readings_, {})) {
    reading->forget();
    ++metrics_.responses[status];
    reading->exchange()->respond(error_response(ApiError(status, why)));
  }
}

void ApiServer::start(Ask ask, const Jobs::MakeReply& make_reply, const Reading& reading) {
  const auto aborted = aborted_early_.find(ask.id);
  if (aborted != aborted_early_.end() && reading.number() <= aborted->second) throw ApiError(400, kAborted);
  ++metrics_.requests;
  jobs_.start(std::move(ask), make_reply, reading.exchange());
}

Finish ApiServer::start_with(Ask read, AnswerOf answer) {
  const auto ask = std::make_shared<Ask>(std::move(read));
  return [ask, answer](ApiServer& s, const Reading& reading) {
    s.start(
        std::move(*ask), [&](const Job& job) { return answer(job, *s.served_); }, reading);
  };
}

Finish ApiServer::completions(const std::string& body, const ServedModel& model, Random& random) {
  return start_with(read_completion(parse_body(body), model, random), completion_reply);
}

Finish ApiServer::chat_completions(const std::string& body, const ServedModel& model, Random& random) {
  return start_with(read_chat(parse_body(body), model, random), chat_reply);
}

Finish ApiServer::generate(const std::string& body, const ServedModel& model, Random& random) {
  return start_with(read_generate(parse_body(body), model, random), generate_reply);
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

Finish ApiServer::tokenize(const std::string& text, const ServedModel& model, Random&) {
  const Json json = parse_body(text);
  const Fields body(json);
  checked_model(body, model);
  std::vector<std::int32_t> ids;
  if (body.find("messages") != nullptr) {
    ids = render_chat(body, model).ids;
  } else {
    const auto prompt = body.text("prompt");
    const auto content = body.text("content");  // llama.cpp's name
    if (!prompt && !content) body.bad("prompt", "missing; expected a string, or messages");
    const char* const name = prompt ? "prompt" : "content";
    ids = encode(model, prompt ? *prompt : *content, body.flag("add_special_tokens").value_or(true), true, name);
  }
  Json::Object out{{"tokens", ids_json(ids)},
                   {"count", Json(static_cast<std::int64_t>(ids.size()))},
                   {"max_model_len", Json(model.longest)}};
  if (body.flag("return_token_strs").value_or(false)) {
    Json::Array names;
    for (const std::int32_t id : ids) names.emplace_back(std::string(model.tokenizer.token(id)));
    out.emplace_back("token_strs", Json(std::move(names)));
  }
  return answer_with(Json(std::move(out)).dump());
}

Finish ApiServer::detokenize(const std::string& text, const ServedModel& model, Random&) {
  const Json json = parse_body(text);
  const Fields body(json);
  checked_model(body, model);
  if (body.find("tokens") == nullptr) body.bad("tokens", "missing; expected a list of token ids");
  const auto ids = checked_ids(model, body.integers("tokens", kMostIds), "tokens");
  const std::string decoded = model.tokenizer.decode(ids, body.flag("skip_special_tokens").value_or(true));
  // vLLM's name, and SGLang's.
  return answer_with(Json(Json::Object{{"prompt", Json(decoded)}, {"text", Json(decoded)}}).dump());
}

Finish ApiServer::apply_template(const std::string& body, const ServedModel& model, Random&) {
  const Json json = parse_body(body);
  const RenderedChat chat = render_chat(Fields(json), model);
  return answer_with(Json(Json::Object{{"prompt", Json(chat.text)}}).dump());
}

Finish ApiServer::answer_with(std::string body) {
  const auto shared = std::make_shared<std::string>(std::move(body));
  return [shared](ApiServer& s, const Reading& reading) { s.reply(reading.exchange(), 200, std::move(*shared)); };
}

void ApiServer::flush_cache(const Exchange& exchange) {
  engine_.clear_prefix_cache();
  reply(exchange, 200, "{\"success\":true}");
}

Finish ApiServer::abort_request(const std::string& text, const ServedModel&, Random&) {
  const Json json = parse_body(text);
  const Fields body(json);
  if (body.flag("abort_all").value_or(false)) {
    return [](ApiServer& s, const Reading& reading) {
      s.refuse_readings(400, kAborted);
      s.jobs_.abort_requests();
      s.reply(reading.exchange(), 200, "{\"success\":true}");
    };
  }
  const auto id = body.text("rid");
  if (!id) body.bad("rid", "missing; expected the id of a request");
  return [id = *id](ApiServer& s, const Reading& reading) {
    s.abort_by_id(id);
    s.reply(reading.exchange(), 200, "{\"success\":true}");
  };
}

// One that is still being read has no id yet; it is refused once it has. Later ones with this id are others.
void ApiServer::abort_by_id(const std::string& id) {
  if (jobs_.abort(id)) return;
  if (readings_.empty()) throw ApiError(404, "no request has this id", "rid", "not_found");
  if (aborted_early_.size() == kMostAbortedEarly) throw ApiError(429, "too many ids that no request has", "rid");
  aborted_early_[id] = newest_reading_;
}

void ApiServer::forget_early_aborts() {
  if (aborted_early_.empty()) return;
  std::uint64_t oldest = newest_reading_ + 1;
  for (const Reading* reading : readings_) oldest = std::min(oldest, reading->number());
  std::erase_if(aborted_early_, [&](const auto& aborted) { return aborted.second < oldest; });
}

}  // namespace sluice::server
