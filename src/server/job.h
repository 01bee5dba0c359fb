// One request of the API while it is in work: what was asked for, and what its sequences have answered so far.
//
// Made by the readers of requests, run by Jobs, turned into bytes by a Reply. Used by the loop's thread; a long answer,
// or a long part of one, is written by a worker, while the loop leaves the job as it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/server.h"
#include "server/answer_text.h"
#include "server/ticket.h"

namespace sluice::server {

using Clock = std::chrono::steady_clock;

struct Prompt {
  std::vector<std::int32_t> ids;
  std::string text;  // as the client sent it, for echo; empty when it sent ids
};

// The request, whatever its protocol.
struct Ask {
  std::string id;            // "chatcmpl-..."
  std::string model;         // as the client named it
  std::int64_t created = 0;  // seconds since 1970
  std::vector<Prompt> prompts;
  std::int64_t n = 1;       // answers to each prompt
  engine::Request request;  // without the prompt; the seed of the first answer
  TextRules rules;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every part of a stream
  bool echo = false;
  bool logprobs = false;
  bool keep_ids = false;            // the ids of the answer are part of the reply
  bool cumulative = false;          // /generate: each part of a stream has the whole text so far
  bool batch = false;               // /generate: the reply is a list
  bool text_in_logprobs = false;    // /generate: with each token's text
  std::int64_t logprob_start = -1;  // /generate: of the prompt; -1 = none of it

  // What a prompt has of its own; empty when `request` and `rules` serve all of them.
  struct Own {
    engine::Request request;
    TextRules rules;
  };
  std::vector<Own> own;
  const engine::Request& request_of(std::size_t prompt) const { return own.empty() ? request : own[prompt].request; }
  const TextRules& rules_of(std::size_t prompt) const { return own.empty() ? rules : own[prompt].rules; }
};

// One generated token, as log-probabilities report it.
struct TokenNote {
  std::int32_t token = -1;
  float logprob = 0;
  std::vector<engine::TokenLogprob> top;
  bool shown = true;  // its text is part of the answer's
};

// One answer.
struct Choice {
  Choice(std::size_t prompt_index, AnswerText answer_text) : prompt(prompt_index), text(std::move(answer_text)) {}

  std::size_t prompt;  // which of the prompts
  AnswerText text;
  Ticket ticket = 0;
  std::string content, thought;   // so far; a stream that is not cumulative keeps the lengths only
  std::vector<TokenNote> notes;   // with logprobs; those not yet sent in a stream
  std::vector<std::int32_t> ids;  // with keep_ids
  std::size_t content_bytes = 0;  // sent or kept, prompt included when echoed
  std::int64_t tokens = 0;
  std::int64_t thought_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::string finish;            // "stop", "length", "abort"; empty while it goes on
  std::string stop_text;         // the stop string that ended it
  std::int32_t stop_token = -1;  // or the token
  bool begun = false;            // something of it was sent
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<engine::TokenLogprob>> prompt_top;
  Clock::time_point last_token{};
  bool open() const { return finish.empty(); }
};

// What is new in a choice since the last part of a stream.
struct Delta {
  std::string content, thought;
  std::vector<TokenNote> notes;
};

struct Job;

// Writes one protocol's JSON. One object for each job; parts are complete events of a stream.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void part(std::string& out, const Job& job, std::size_t choice, const Delta& delta) = 0;
  virtual void tail(std::string& out, const Job& job) = 0;  // after the last part
  virtual std::string whole(const Job& job) = 0;            // of an answer that is not streamed
};

struct Job {
  Ask ask;
  std::vector<Choice> choices;  // prompt after prompt, n for each
  std::unique_ptr<Reply> reply;
  std::shared_ptr<http::Exchange> exchange;
  Clock::time_point received = Clock::now();
  bool streaming = false;  // the head of the stream was sent
  std::int64_t open_choices = 0;
  bool writing = false;          // a worker writes a part of the stream: nothing here may change but `held`
  std::deque<TicketEvent> held;  // what has happened meanwhile

  std::int64_t prompt_tokens() const;
  std::int64_t completion_tokens() const;
  std::int64_t cached_tokens() const;
  std::int64_t thought_tokens() const;
};

}  // namespace sluice::server
