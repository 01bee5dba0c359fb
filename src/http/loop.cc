#include "http/loop.h"

#include <event2/event.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "core/error.h"

namespace sluice::http {
namespace {

void on_event(evutil_socket_t, short, void* event) {
  const auto* call = static_cast<const EventCall*>(event);
  call->loop->call(call->call);
}

[[noreturn]] void no_resources(const std::string& what) {
  fail(ErrorCode::resources, what + ": " + std::strerror(errno), "", "raise the limit of open files (ulimit -n)");
}

event* checked(event* made) {
  if (made == nullptr) no_resources("an event could not be made");
  return made;
}

timeval to_timeval(Seconds s) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(s).count();
  return {us / 1'000'000, us % 1'000'000};
}

short flags_of(Watch::Kind kind) {
  if (kind == Watch::Kind::signal) return EV_SIGNAL | EV_PERSIST;
  return static_cast<short>((kind == Watch::Kind::read ? EV_READ : EV_WRITE) | EV_PERSIST);
}

// Whatever the environment asks other users of the library for, as the start of ranks does for mpirun.
event_base* new_base() {
  event_config* const config = event_config_new();
  if (config == nullptr) return nullptr;
  event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
  event_base* const base = event_base_new_with_config(config);
  event_config_free(config);
  return base;
}

}  // namespace

Loop::Loop() : base_(new_base()) {
  if (base_ == nullptr) no_resources("no event loop");
  later_ = event_new(
      base_, -1, 0, [](evutil_socket_t, short, void* loop) { static_cast<Loop*>(loop)->run_deferred(); }, this);
  if (later_ == nullptr) {
    event_base_free(base_);
    no_resources("an event could not be made");
  }
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

Loop::~Loop() {
  deferred_.clear();  // what they own has events of this loop
  event_free(later_);
  event_base_free(base_);
}

void Loop::run() {
  event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Loop::call(const Callback& callback) {
  try {
    callback();
  } catch (...) {
    if (!thrown_) thrown_ = std::current_exception();
    stop();
  }
}
void Loop::stop() { event_base_loopbreak(base_); }

void Loop::defer(Callback work) {
  deferred_.push_back(std::move(work));
  if (deferred_.size() == 1) event_active(later_, 0, 0);
}

void Loop::run_deferred() {
  for (const Callback& work : std::exchange(deferred_, {})) call(work);
}

Watch::Watch(Loop& loop, Kind kind, int descriptor_or_signal, Callback call)
    : call_{&loop, std::move(call)},
      event_(checked(event_new(loop.base(), descriptor_or_signal, flags_of(kind), on_event, &call_))) {}
Watch::~Watch() { event_free(event_); }
void Watch::enable() { event_add(event_, nullptr); }
void Watch::disable() { event_del(event_); }

Timer::Timer(Loop& loop, Callback call)
    : call_{&loop, std::move(call)}, event_(checked(evtimer_new(loop.base(), on_event, &call_))) {}
Timer::~Timer() { event_free(event_); }
void Timer::start(Seconds after) {
  const timeval time = to_timeval(after);
  event_add(event_, &time);
}
void Timer::stop() { event_del(event_); }

Wakeup::Wakeup(Loop& loop, Callback call)
    : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      call_(std::move(call)),
      watch_(loop, Watch::Kind::read, descriptor_, [this] { drain(); }) {
  if (descriptor_ < 0) no_resources("no eventfd");
  watch_.enable();
}

Wakeup::~Wakeup() {
  watch_.disable();
  close(descriptor_);
}

void Wakeup::notify() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is about to wake up anyway.
  if (write(descriptor_, &one, sizeof one) < 0) return;
}

void Wakeup::drain() {
  std::uint64_t count = 0;
  if (read(descriptor_, &count, sizeof count) > 0) call_();
}

}  // namespace sluice::http
