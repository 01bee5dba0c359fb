#include "server/jobs.h"

#include <fmt/core.h>

#include <utility>

#include "server/api_error.h"

namespace sluice::server {
namespace {

constexpr std::size_t kLongAnswer = 2048;  // entries; written in about a millisecond

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

http::Response stream_head() {
  http::Response head;
  head.content_type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return head;
}

// Log-probabilities that an answer lists.
std::size_t entries_of(const Job& job) {
  const std::size_t each = static_cast<std::size_t>(job.ask.request.top_logprobs) + 1;
  std::size_t positions = 0;
  for (const Choice& choice : job.choices) positions += choice.notes.size() + choice.prompt_logprobs.size();
  return positions * each;
}

// A long answer: written by a worker, sent by the loop.
class Writing : public Errand {
 public:
  Writing(std::unique_ptr<Job> job, std::int64_t& open) : job_(std::move(job)), open_(open) {}

  void work() noexcept override {
    try {
      response_.body = job_->reply->whole(*job_);
      job_->choices.clear();  // as long to free as to write
    } catch (...) {
      response_ = current_error_response();
    }
  }
  void done() override {
    --open_;
    job_->exchange->respond(response_);
  }

 private:
  std::unique_ptr<Job> job_;
  std::int64_t& open_;
  http::Response response_;
};

}  // namespace

void Jobs::set_text(const text::Tokenizer& tokenizer, const ThoughtTokens& thoughts) {
  tokenizer_ = &tokenizer;
  thoughts_ = &thoughts;
}

void Jobs::admit(const Ask& ask) const {
  if (named(ask.id) != nullptr) {
    throw ApiError(400, "a request with this id is in work; expected another one", "rid", "invalid_value");
  }
  const std::int64_t wanted = std::ssize(ask.prompts) * ask.n;
  const std::int64_t most = most_sequences();
  if (wanted > most) {
    throw ApiError(400, fmt::format("{} sequences were asked for at once; at most {} are taken", wanted, most), "n",
                   "invalid_value");
  }
  if (open_sequences() + wanted > most) {
    throw ApiError(
        429,
        fmt::format("the queue is full: {} sequences are in work or wait, {} more were asked for, and {} fit",
                    open_sequences(), wanted, most),
        "", "queue_full");
  }
  std::int64_t tokens = 0;
  for (const Prompt& prompt : ask.prompts) tokens += std::ssize(prompt.ids) * ask.n;
  if (limits_.queued_tokens > 0 && waiting_tokens_ > 0 && waiting_tokens_ + tokens > limits_.queued_tokens) {
    throw ApiError(429,
                   fmt::format("the queue is full: {} prompt tokens wait, {} more were asked for, and {} fit",
                               waiting_tokens_, tokens, limits_.queued_tokens),
                   "", "queue_full");
  }
}

void Jobs::start(Ask ask, const MakeReply& reply, const std::shared_ptr<http::Exchange>& exchange) {
  admit(ask);
  auto owned = std::make_unique<Job>();
  Job* const job = owned.get();
  job->ask = std::move(ask);
  job->reply = reply(*job);
  job->exchange = exchange;
  for (std::size_t p = 0; p < job->ask.prompts.size(); ++p) {
    const std::vector<std::int32_t>& ids = job->ask.prompts[p].ids;
    const bool in_thought = thoughts_->opened_by(ids);
    for (std::int64_t i = 0; i < job->ask.n; ++i) {
      job->choices.emplace_back(p, AnswerText(*tokenizer_, *thoughts_, job->ask.rules_of(p), in_thought));
    }
    metrics_.prompt_tokens.observe(static_cast<double>(ids.size()));
  }
  for (std::size_t i = 0; i < job->choices.size(); ++i) submit(*job, i);
  job->open_choices = std::ssize(job->choices);
  metrics_.prompt_tokens_total += job->prompt_tokens();
  exchange->on_gone = [this, job] { drop(job, "gone"); };
  jobs_.emplace(job, std::move(owned));
}

void Jobs::submit(Job& job, std::size_t index) {
  Choice& choice = job.choices[index];
  engine::Request request = job.ask.request_of(choice.prompt);
  request.prompt = job.ask.prompts[choice.prompt].ids;
  request.sampling.seed += index % static_cast<std::size_t>(job.ask.n);
  choice.ticket = next_ticket_++;
  waiting_tokens_ += std::ssize(request.prompt);
  tickets_.emplace(choice.ticket, Place{&job, index, std::ssize(request.prompt)});
  engine_.submit(choice.ticket, std::move(request));
}

void Jobs::on_events(std::vector<TicketEvent> events) {
  for (TicketEvent& event : events) {
    const auto found = tickets_.find(event.ticket);
    if (found != tickets_.end()) on_event(found->second, event);
  }
}

void Jobs::on_event(Place& place, TicketEvent& event) {
  Job& job = *place.job;
  const std::size_t index = place.choice;
  Choice& choice = job.choices[index];
  waiting_tokens_ -= std::exchange(place.waiting_tokens, 0);
  if (event.refusal != 0) return fail(job, event.refusal, event.event.error);
  if (event.event.finish == engine::FinishReason::error) return fail(job, 500, event.event.error);
  Delta delta;
  choice.cached_tokens = event.event.cached_tokens;
  if (!event.event.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(event.event.prompt_logprobs);
  if (!event.event.prompt_top.empty()) choice.prompt_top = std::move(event.event.prompt_top);
  if (event.event.token >= 0) take_token(job, choice, event.event, delta);
  if (event.event.finish == engine::FinishReason::length) choice.finish = "length";
  if (event.event.finish == engine::FinishReason::stop) choice.finish = "stop";
  if (choice.text.stopped()) {
    if (choice.open()) engine_.cancel(choice.ticket);
    choice.finish = "stop";
  }
  if (!choice.open()) end_choice(job, choice, delta);
  send(job, index, delta);
  if (job.open_choices == 0) finish(job);
}

void Jobs::take_token(Job& job, Choice& choice, engine::Event& event, Delta& delta) {
  const Clock::time_point now = Clock::now();
  if (choice.tokens++ == 0) {
    metrics_.time_to_first_token.observe(seconds_since(job.received));
    if (event.timing.scheduled > event.timing.submitted) {
      metrics_.queue_time.observe(
          std::chrono::duration<double>(event.timing.scheduled - event.timing.submitted).count());
    }
  } else {
    metrics_.inter_token.observe(std::chrono::duration<double>(now - choice.last_token).count());
  }
  choice.last_token = now;
  ++metrics_.generated_tokens_total;
  const bool ends = event.finish == engine::FinishReason::stop;
  if (job.ask.keep_ids) choice.ids.push_back(event.token);
  if (job.ask.logprobs && (!ends || job.ask.keep_ids)) {
    const bool shown = !(job.ask.rules_of(choice.prompt).skip_special && tokenizer_->is_special(event.token));
    delta.notes.push_back({event.token, event.logprob, std::move(event.top), shown});
  }
  choice.thought_tokens += choice.text.in_thought() ? 1 : 0;
  if (ends) {
    choice.stop_token = event.token;
    return;
  }
  AnswerText::Piece piece = choice.text.push(event.token);
  delta.content = std::move(piece.content);
  delta.thought = std::move(piece.thought);
}

void Jobs::end_choice(Job& job, Choice& choice, Delta& delta) {
  AnswerText::Piece rest = choice.text.finish();
  delta.content += rest.content;
  delta.thought += rest.thought;
  if (choice.text.stopped()) {
    choice.finish = "stop";
    choice.stop_text = choice.text.stop();
    choice.stop_token = -1;
  }
  tickets_.erase(choice.ticket);
  --job.open_choices;
  ++metrics_.finished[choice.finish];
  metrics_.cached_tokens_total += choice.cached_tokens;
  metrics_.generated_tokens.observe(static_cast<double>(choice.tokens));
}

void Jobs::send(Job& job, std::size_t index, Delta& delta) {
  Choice& choice = job.choices[index];
  const bool keep = !job.ask.stream || job.ask.cumulative;
  if (keep) {
    choice.content += delta.content;
    choice.thought += delta.thought;
  }
  // In a stream, what belongs to text that is still held back waits for it.
  for (TokenNote& note : std::exchange(delta.notes, {})) choice.notes.push_back(std::move(note));
  if (!job.ask.stream) return;
  const bool first = !choice.begun;
  if (delta.content.empty() && delta.thought.empty() && choice.open() && !first) return;
  if (!std::exchange(job.streaming, true)) job.exchange->start_stream(stream_head());
  if (!keep) delta.notes = std::exchange(choice.notes, {});
  std::string out;
  job.reply->part(out, job, index, delta);
  choice.begun = true;
  job.exchange->write(out);
}

void Jobs::fail(Job& job, int status, const std::string& why) {
  const ApiError error(status, why);
  if (!job.streaming) {
    ++metrics_.responses[status];
    job.exchange->respond(error_response(error));
  } else {
    job.exchange->write("data: " + error_json(error) + "\n\ndata: [DONE]\n\n");
    job.exchange->end();
  }
  drop(&job, status == 429 ? "refused" : "error");
}

void Jobs::finish(Job& job) {
  metrics_.end_to_end.observe(seconds_since(job.received));
  ++metrics_.responses[200];
  if (job.streaming) {
    std::string tail;
    job.reply->tail(tail, job);
    job.exchange->write(tail);
    job.exchange->end();
  } else if (entries_of(job) > kLongAnswer) {
    return write_elsewhere(job);
  } else {
    http::Response response;
    response.body = job.reply->whole(job);
    job.exchange->respond(response);
  }
  drop(&job, "done");
}

void Jobs::write_elsewhere(Job& job) {
  auto node = jobs_.extract(&job);
  job.exchange->on_gone = nullptr;
  ++writing_;
  workers_.post(Workers::Lane::lengthy, std::make_unique<Writing>(std::move(node.mapped()), writing_));
}

void Jobs::forget_ticket(Ticket ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  waiting_tokens_ -= found->second.waiting_tokens;
  engine_.cancel(ticket);
  tickets_.erase(found);
}

// Takes a job out, and its open sequences back from the engine.
void Jobs::drop(Job* job, const char* outcome) {
  for (const Choice& choice : job->choices) {
    if (!choice.open()) continue;
    forget_ticket(choice.ticket);
    ++metrics_.finished[outcome];
  }
  jobs_.erase(job);
}

void Jobs::abort_all(int status, const std::string& why) {
  while (!jobs_.empty()) fail(*jobs_.begin()->second, status, why);
}

bool Jobs::abort(const std::string& id) {
  Job* const job = named(id);
  if (job != nullptr) end_early(*job);
  return job != nullptr;
}

void Jobs::abort_requests() {
  std::vector<Job*> requests;
  for (const auto& [job, owner] : jobs_) {
    if (!job->ask.model.empty()) requests.push_back(job);  // a health check names none
  }
  for (Job* job : requests) end_early(*job);
}

void Jobs::end_early(Job& job) {
  for (std::size_t i = 0; i < job.choices.size(); ++i) {
    Choice& choice = job.choices[i];
    if (!choice.open()) continue;
    forget_ticket(choice.ticket);
    choice.finish = "abort";
    Delta rest;
    end_choice(job, choice, rest);
    send(job, i, rest);
  }
  finish(job);
}

Job* Jobs::named(const std::string& id) const {
  for (const auto& [job, owner] : jobs_) {
    if (job->ask.id == id) return job;
  }
  return nullptr;
}

}  // namespace sluice::server
