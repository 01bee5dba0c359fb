// Owned streams and events, for load time, tests and benches: operations get their stream from the caller.
// Move-only; one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "core/device.h"

namespace sluice::cuda {

class OwnedStream {
 public:
  explicit OwnedStream(int device);
  ~OwnedStream();
  OwnedStream(OwnedStream&& o) noexcept : stream_(std::exchange(o.stream_, nullptr)) {}
  OwnedStream& operator=(OwnedStream&&) = delete;

  cudaStream_t get() const { return stream_; }
  Stream handle() const { return {stream_}; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& o) noexcept : event_(std::exchange(o.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const;
  // As a node of a graph that is being captured: its time is that of each replay.
  void record_in_graph(cudaStream_t stream) const;
  void synchronize() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Microseconds between two timed events that have happened.
double elapsed_us(const Event& from, const Event& to);

}  // namespace sluice::cuda
