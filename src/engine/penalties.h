// What penalties, logit_bias and min_new_tokens do to the logits of one request, kept up to date token by token.
//
// Owned by its Sequence, one thread. A generated token changes one entry, so the cost of a step does not grow with the
// prompt or the answer. Survives preemption.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"
#include "moe/backend.h"

namespace sluice::engine {

class Penalties {
 public:
  // Reads the request once; nothing of it is kept.
  explicit Penalties(const Request& request);

  void add_generated(std::int32_t token);

  // Valid until the next token is added. Empty when the request changes no logit.
  std::span<const LogitEdit> edits() const { return edits_; }

 private:
  struct Entry {
    float bias = 0.0f;
    std::int64_t answered = 0;  // times the token was generated
    bool repeated = false;      // it is in the prompt or in the answer
    bool ends = false;          // it would end the request
  };
  void refresh(std::size_t i);
  std::size_t at(std::int32_t token);  // its entry, made if need be

  float presence_, frequency_, repetition_;
  std::int64_t ban_left_;  // generated tokens until those that end the request are allowed
  std::vector<Entry> entries_;
  std::vector<LogitEdit> edits_;  // [entries]
  std::unordered_map<std::int32_t, std::size_t> index_;
};

}  // namespace sluice::engine
