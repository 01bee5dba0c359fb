#include "server/writing.h"

#include "server/api_error.h"

namespace sluice::server {
namespace {

std::size_t entries_each(const Job& job) { return static_cast<std::size_t>(job.ask.request.top_logprobs) + 1; }

}  // namespace

std::size_t entries_of(const Job& job) {
  std::size_t positions = 0;
  for (const Choice& choice : job.choices) positions += choice.notes.size() + choice.prompt_logprobs.size();
  return positions * entries_each(job);
}

std::size_t entries_of_part(const Job& job, std::size_t index, const Delta& delta) {
  const Choice& choice = job.choices[index];
  const bool with_prompt = job.ask.cumulative || !choice.begun;
  return (delta.notes.size() + choice.notes.size() + (with_prompt ? choice.prompt_logprobs.size() : 0)) *
         entries_each(job);
}

void WholeAnswer::work() noexcept {
  try {
    response_.body = job_->reply->whole(*job_);
    job_->choices.clear();  // as long to free as to write
  } catch (...) {
    response_ = current_error_response();
  }
}

void WholeAnswer::done() {
  --open_;
  job_->exchange->respond(response_);
}

void StreamPart::work() noexcept {
  try {
    job_->reply->part(text_, *job_, choice_, delta_);
    if (job_->ask.cumulative) return;
    Choice& choice = job_->choices[choice_];
    choice.prompt_logprobs.clear();  // no later part has them
    choice.prompt_top.clear();
    delta_ = {};
  } catch (const std::exception& e) {
    error_ = e.what();
  }
}

}  // namespace sluice::server
