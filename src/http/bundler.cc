#include "http/bundler.h"

#include <utility>

namespace sluice::http {

Bundler::Bundler(Clock::duration window, Now now, StartTimer start_timer)
    : window_(window), now_(std::move(now)), start_timer_(std::move(start_timer)) {}

bool Bundler::holds(Member& member) {
  if (!member.sent_) return false;
  const Clock::duration since = now_() - *member.sent_;
  if (since >= window_) return false;
  if (std::exchange(member.waits_, true)) return true;
  if (waiting_.empty()) start_timer_(window_ - since);
  waiting_.push_back(&member);
  return true;
}

void Bundler::sent(Member& member) {
  member.sent_ = now_();
  member.waits_ = false;
}

void Bundler::forget(Member& member) { std::erase(waiting_, &member); }

void Bundler::leave() {
  for (Member* member : std::exchange(waiting_, {})) {
    if (std::exchange(member->waits_, false)) member->send();
  }
}

}  // namespace sluice::http
