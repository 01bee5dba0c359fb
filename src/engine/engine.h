// Continuous batching over one decoder: submit requests, call step() until idle, read the events.
//
// Used by the commands and the server. One thread at a time calls it (a server gives it a thread of its own and queues
// around it). All memory is taken in the constructor: KV blocks, workspace, token buffers. With a row-invariant decoder
// the tokens of a request do not depend on what else is in the batch, on chunking or on preemption.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "engine/stats.h"
#include "model/decoder.h"

namespace sluice::engine {

struct EngineOptions {
  std::int64_t max_batch_tokens = 512;  // tokens of one step: decodes plus prompt chunks; 0 = context_length
  std::int64_t max_sequences = 16;      // requests in work at the same time; others wait
  std::int64_t context_length = 0;      // longest prompt plus answer; 0 = the decoder's max_positions
  std::int64_t kv_tokens = 0;           // capacity of the KV cache; 0 = context_length
  std::int64_t max_logit_rows = 64;     // rows of logits of one step, at least max_sequences
};

class Engine {
 public:
  // `decoder` is not owned and outlives the engine.
  Engine(const model::Decoder& decoder, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineOptions& options() const;  // with all zeros resolved

  // Throws Error(usage), naming the numbers, for an empty prompt, ids outside the vocabulary, a prompt that leaves no
  // room in the context, or sampling values out of range. max_new_tokens is cut to what the context leaves.
  RequestId submit(Request request);

  // Ends a request without a further event and frees its blocks. Unknown and finished ids are ignored.
  void cancel(RequestId id);

  bool idle() const;  // nothing waiting, nothing running

  // Plans, executes and samples one batch. A failure of one request ends that request only, with an error event.
  std::vector<Event> step();

  const Stats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
