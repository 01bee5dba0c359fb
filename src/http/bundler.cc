#include "http/bundler.h"

#include <utility>

namespace sluice::http {

Bundler::Bundler(Clock::duration window, Now now, StartTimer start_timer)
    : window_(window), now_(std::move(now)), start_timer_(std::move(start_timer)) {}

bool Bundler::holds(Member& member) {
  if (!member.sent_ || now_() - *member.sent_ >= window_) return false;
  if (std::exchange(member.waits_, true)) return true;
  if (waiting_++ == 0) {
    listed_.clear();
    start_timer_(window_);
  }
  listed_.push_back(&member);
  return true;
}

void Bundler::sent(Member& member) {
  member.sent_ = now_();
  if (std::exchange(member.waits_, false)) --waiting_;
}

void Bundler::forget(Member& member) {
  if (std::exchange(member.waits_, false)) --waiting_;
  std::erase(listed_, &member);
}

void Bundler::leave() {
  for (Member* member : std::exchange(listed_, {})) {
    if (!std::exchange(member->waits_, false)) continue;
    --waiting_;
    member->send();
  }
}

}  // namespace sluice::http
