#include "server/reading.h"

#include <utility>

#include "server/api_error.h"

namespace sluice::server {

Reading::Reading(Read read, const std::shared_ptr<http::Exchange>& exchange, const ServedModel& model,
                 std::uint64_t seed, std::uint64_t number, std::function<void(Reading&)> on_done)
    : read_(read),
      exchange_(exchange),
      model_(model),
      seed_(seed),
      number_(number),
      on_done_(std::move(on_done)),
      body_(exchange->take_body()),
      body_bytes_(body_.size()) {}

void Reading::work() noexcept {
  if (forgotten_) return;
  try {
    Random random(seed_);
    finish_ = read_(body_, model_, random);
  } catch (...) {
    refusal_ = current_error_response();
  }
  body_ = std::string();  // gives the memory back
}

void Reading::done() { on_done_(*this); }

}  // namespace sluice::server
