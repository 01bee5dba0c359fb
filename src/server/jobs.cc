#include "server/jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "server/api_error.h"

namespace sluice::server {
namespace {

bool keeps_all(const Job& job) { return !job.ask.stream || job.ask.cumulative; }

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

http::Response stream_head() {
  http::Response head;
  head.content_type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return head;
}

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
  auto owned = std::make_shared<Job>();
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
  for (TicketEvent& event : events) on_event(event);
}

void Jobs::on_event(TicketEvent& event) {
  const auto found = tickets_.find(event.ticket);
  if (found == tickets_.end()) return;
  Job& job = *found->second.job;
  const std::size_t index = found->second.choice;
  waiting_tokens_ -= std::exchange(found->second.waiting_tokens, 0);
  if (job.writing) return job.held.push_back(std::move(event));
  Choice& choice = job.choices[index];
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
  if (event.aborted) choice.finish = "abort";
  if (!choice.open()) end_choice(job, choice, delta);
  keep(job, choice, delta);
  // Of a stream whose parts have all so far, the last of those that wait is enough.
  const bool superseded = job.ask.cumulative && choice.open() &&
                          std::any_of(job.held.begin(), job.held.end(),
                                      [&](const TicketEvent& later) { return later.ticket == event.ticket; });
  if (!superseded) send(job, index, delta);
  if (job.open_choices == 0 && !job.writing) finish(job);
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

// What the reply needs later.
void Jobs::keep(const Job& job, Choice& choice, Delta& delta) {
  if (keeps_all(job)) {
    choice.content += delta.content;
    choice.thought += delta.thought;
  }
  // In a stream, what belongs to text that is still held back waits for it.
  for (TokenNote& note : std::exchange(delta.notes, {})) choice.notes.push_back(std::move(note));
}

void Jobs::send(Job& job, std::size_t index, Delta& delta) {
  Choice& choice = job.choices[index];
  if (!job.ask.stream) return;
  const bool first = !choice.begun;
  if (delta.content.empty() && delta.thought.empty() && choice.open() && !first) return;
  if (!std::exchange(job.streaming, true)) job.exchange->start_stream(stream_head());
  if (!keeps_all(job)) delta.notes = std::exchange(choice.notes, {});
  if (entries_of_part(job, index, delta) > kLongAnswer) return write_part_elsewhere(job, index, std::move(delta));
  std::string out;
  job.reply->part(out, job, index, delta);
  choice.begun = true;
  if (first || !choice.open()) return job.exchange->write(out);
  job.exchange->write_soon(out);
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
  ++metrics_.written_aside;
  workers_.post(Workers::Lane::lengthy, std::make_unique<WholeAnswer>(std::move(node.mapped()), writing_));
}

void Jobs::write_part_elsewhere(Job& job, std::size_t choice, Delta&& delta) {
  job.writing = true;
  ++metrics_.written_aside;
  workers_.post(Workers::Lane::lengthy,
                std::make_unique<StreamPart>(
                    jobs_.at(&job), choice, std::move(delta),
                    [this](const std::shared_ptr<Job>& of, const StreamPart& p) { part_written(of, p); }));
}

// Goes on with what has happened meanwhile.
void Jobs::part_written(const std::shared_ptr<Job>& job, const StreamPart& part) {
  job->writing = false;
  if (!jobs_.contains(job.get())) return;  // its client has gone
  if (!part.error().empty()) return fail(*job, 500, "the answer could not be written: " + part.error());
  job->choices[part.choice()].begun = true;
  job->exchange->write(part.text());
  while (!job->writing && !job->held.empty()) {
    TicketEvent event = std::move(job->held.front());
    job->held.pop_front();
    on_event(event);
  }
  if (jobs_.contains(job.get()) && job->open_choices == 0 && !job->writing) finish(*job);
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
  std::vector<Ticket> open;
  for (const Choice& choice : job.choices) {
    if (choice.open()) open.push_back(choice.ticket);
  }
  for (const Ticket ticket : open) {
    engine_.cancel(ticket);
    TicketEvent event;
    event.ticket = ticket;
    event.aborted = true;
    on_event(event);
  }
}

Job* Jobs::named(const std::string& id) const {
  for (const auto& [job, owner] : jobs_) {
    if (job->ask.id == id) return job;
  }
  return nullptr;
}

}  // namespace sluice::server
