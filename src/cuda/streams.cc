#include "cuda/streams.h"

#include "cuda/device.h"
#include "cuda/status.h"

namespace sluice::cuda {

OwnedStream::OwnedStream(int device) {
  const DeviceScope scope(device);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void OwnedStream::synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event"); }

void Event::record_in_graph(cudaStream_t stream) const {
  check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "recording an event in a graph");
}

void Event::synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }

double elapsed_us(const Event& from, const Event& to) {
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "time between events");
  return static_cast<double>(milliseconds) * 1e3;
}

}  // namespace sluice::cuda
