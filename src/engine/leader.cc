#include "engine/leader.h"

#include <chrono>
#include <string>

#include "core/error.h"

namespace sluice::engine {
namespace {

void check_result(const StepResult& result, const GroupStep& asked, std::int64_t vocab, std::size_t group) {
  const std::size_t logits = asked.copy_rows.size() * static_cast<std::size_t>(vocab);
  if (result.tokens.size() == asked.params.size() && result.logits.size() == logits) return;
  fail(ErrorCode::bad_input,
       "group " + std::to_string(group) + " answered with " + std::to_string(result.tokens.size()) + " rows and " +
           std::to_string(result.logits.size()) + " logits",
       std::to_string(asked.params.size()) + " rows and " + std::to_string(logits) + " logits",
       "are all ranks of the same build?");
}

// Choices are counted by one rank of each group, rows by the rank that computes them: nothing is counted twice.
void add(ExpertLoad& sum, const ExpertLoad& load) {
  if (load.layers.size() != sum.layers.size()) {
    fail(ErrorCode::bad_input, "expert load of " + std::to_string(load.layers.size()) + " layers",
         std::to_string(sum.layers.size()), "are all ranks of the same build?");
  }
  sum.tokens += load.tokens;
  for (std::size_t i = 0; i < sum.layers.size(); ++i) {
    std::vector<std::int64_t>& to = sum.layers[i].choices;
    for (std::size_t e = 0; e < to.size(); ++e) to[e] += load.layers[i].choices.at(e);
    for (const RankLoad& rank : load.layers[i].ranks) sum.layers[i].ranks.push_back(rank);
  }
}

}  // namespace

Leader::Leader(const EngineRanks& ranks) : ranks_(ranks), channel_(ranks) {
  thread_ = std::thread([this] { keep_in_touch(); });
}

Leader::~Leader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (lost_) return;
  try {
    channel_.send(StepMessage(StepCommand::stop));
  } catch (const Error&) {
    // A rank that cannot be told to stop is gone already; whoever owns the ranks reports it.
  }
}

std::unique_lock<std::mutex> Leader::turn() {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return lock;
}

void Leader::abandon() { lost_ = true; }

std::vector<StepResult> Leader::collect(const StepMessage& asked, StepResult own, std::int64_t vocab) {
  std::vector<StepResult> results;
  results.push_back(std::move(own));
  if (!channel_.answers()) return results;
  const std::vector<std::vector<std::byte>> parts = channel_.gather({});
  for (std::size_t g = 1; g < parts.size(); ++g) {
    results.push_back(result_from_bytes(parts[g]));
    check_result(results.back(), asked.groups[g], vocab, g);
  }
  return results;
}

ExpertLoad Leader::collect_load(ExpertLoad own) {
  const std::vector<std::vector<std::byte>> parts = channel_.gather_all({});
  for (std::size_t r = 1; r < parts.size(); ++r) add(own, load_from_bytes(parts[r]));
  return own;
}

void Leader::keep_in_touch() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> pause(ranks_.idle_seconds);
  while (!wake_.wait_for(lock, pause, [this] { return stopping_; })) {
    if (lost_) return;
    try {
      channel_.send(StepMessage(StepCommand::nothing));
    } catch (...) {
      failure_ = std::current_exception();
      lost_ = true;
    }
  }
}

}  // namespace sluice::engine
