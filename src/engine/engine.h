// Continuous batching over one decoder: submit requests, call step() until idle, read the events.
//
// Used by the commands and the server. One thread at a time calls it (a server gives it a thread of its own and queues
// around it). All memory is taken in the constructor: KV blocks, workspace, token buffers. In a run over several ranks
// rank 0 has the engine and the others call follow(); a failure between them ends the run. With a row-invariant decoder
// the tokens and log-probabilities of a request do not depend on what else is in the batch, on chunking, on preemption
// or on what the prefix cache had.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/options.h"
#include "engine/ranks.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "model/decoder.h"

namespace sluice::engine {

// What became of a request that try_submit was given: its id, or the limit that is in the way.
struct Submission {
  enum class Refusal : std::uint8_t { none, queued_requests, queued_tokens };
  RequestId id{};
  Refusal refusal = Refusal::none;
  std::int64_t waiting = 0;  // refused: what waits already, in units of the limit
  std::int64_t limit = 0;
  bool accepted() const { return refusal == Refusal::none; }
};

class Engine {
 public:
  // `decoder` is not owned and outlives the engine. `ranks`: this one's place among several; sizes in `options` are
  // those of one dp group.
  Engine(const model::Decoder& decoder, const EngineOptions& options, const EngineRanks& ranks = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineOptions& options() const;  // with all zeros resolved

  // Throws Error(usage), naming the numbers, for an empty prompt, ids outside the vocabulary, a prompt that leaves no
  // room in the context, sampling values out of range, or a request that the KV cache could not hold even alone.
  // max_new_tokens is cut to what the context leaves. A full queue is no error but an answer.
  Submission try_submit(Request request);
  // The same; throws Error(resources) when the queue is full.
  RequestId submit(Request request);

  // Ends a request, waiting or running, without a further event and frees its blocks. Unknown and finished ids are
  // ignored.
  void cancel(RequestId id);

  bool idle() const;  // nothing waiting, nothing running

  // Plans, executes and samples one batch. A failure of one request ends that request only, with an error event.
  std::vector<Event> step();

  const EngineStats& stats() const;
  ExpertLoad expert_load() const;  // a copy

  // Forgets all cached prefixes; running requests keep their blocks.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
