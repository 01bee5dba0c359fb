// A request whose body is being read: parsed, checked and cut into tokens by a worker, answered by the loop.
//
// Made by the router for every route that has a reader. The loop's thread only, but for work().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "http/server.h"
#include "server/sampling_fields.h"
#include "server/served_model.h"
#include "server/workers.h"

namespace sluice::server {

class ApiServer;
class Reading;

// What the loop does once a body has been read: starts a job, or answers.
using Finish = std::function<void(ApiServer&, const Reading&)>;
// Reads a body, on a worker's thread. Throws what the router turns into a refusal.
using Read = Finish (*)(const std::string& body, const ServedModel& model, Random& random);

class Reading : public Errand {
 public:
  // Takes the body out of the exchange. `number` counts bodies in the order of their coming. `model` outlives this;
  // `on_done` is called on the loop's thread.
  Reading(Read read, const std::shared_ptr<http::Exchange>& exchange, const ServedModel& model, std::uint64_t seed,
          std::uint64_t number, std::function<void(Reading&)> on_done);

  void work() noexcept override;
  void done() override;

  // The request needs no answer any more: the client has gone, or somebody else has answered.
  void forget() { forgotten_ = true; }
  const std::shared_ptr<http::Exchange>& exchange() const { return exchange_; }
  std::size_t body_bytes() const { return body_bytes_; }
  std::uint64_t number() const { return number_; }

  // After work().
  const Finish& finish() const { return finish_; }            // empty when the request is refused
  const http::Response& refusal() const { return refusal_; }  // then

 private:
  Read read_;
  std::shared_ptr<http::Exchange> exchange_;
  const ServedModel& model_;
  std::uint64_t seed_;
  std::uint64_t number_;
  std::function<void(Reading&)> on_done_;
  std::string body_;
  std::size_t body_bytes_;
  std::atomic<bool> forgotten_ = false;
  Finish finish_;
  http::Response refusal_;
};

}  // namespace sluice::server
