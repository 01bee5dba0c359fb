#include "engine/penalties.h"

#include <limits>

namespace sluice::engine {

Penalties::Penalties(const Request& request)
    : presence_(request.sampling.presence_penalty),
      frequency_(request.sampling.frequency_penalty),
      repetition_(request.sampling.repetition_penalty),
      ban_left_(request.min_new_tokens) {
  for (const LogitBias& b : request.sampling.logit_bias) entries_[at(b.token)].bias += b.bias;
  if (repetition_ != 1.0f) {
    for (const std::int32_t t : request.prompt) entries_[at(t)].repeated = true;
  }
  if (ban_left_ > 0) {
    for (const std::int32_t t : request.stop_ids) entries_[at(t)].ends = true;
    if (!request.ignore_eos) {
      for (const std::int32_t t : request.eos_ids) entries_[at(t)].ends = true;
    }
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) refresh(i);
}

void Penalties::add_generated(std::int32_t token) {
  if (presence_ != 0.0f || frequency_ != 0.0f || repetition_ != 1.0f) {
    const std::size_t i = at(token);
    ++entries_[i].answered;
    entries_[i].repeated = true;
    refresh(i);
  }
  if (ban_left_ == 0 || --ban_left_ > 0) return;
  for (std::size_t i = 0; i < entries_.size(); ++i) refresh(i);
}

void Penalties::refresh(std::size_t i) {
  const Entry& e = entries_[i];
  LogitEdit& edit = edits_[i];
  edit.divisor = e.repeated ? repetition_ : 1.0f;
  edit.add = -frequency_ * static_cast<float>(e.answered) - (e.answered > 0 ? presence_ : 0.0f) + e.bias;
  if (e.ends && ban_left_ > 0) edit.add = -std::numeric_limits<float>::infinity();
}

std::size_t Penalties::at(std::int32_t token) {
  const auto [it, is_new] = index_.emplace(token, entries_.size());
  if (is_new) {
    entries_.emplace_back();
    edits_.push_back({token, 1.0f, 0.0f});
  }
  return it->second;
}

}  // namespace sluice::engine
