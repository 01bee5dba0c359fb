#include "comm/nccl_comm.h"

#include <chrono>
#include <exception>
#include <utility>

#include "comm/board.h"
#include "comm/patience.h"
#include "core/error.h"

namespace sluice::comm {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(ErrorCode::resources, std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

OnDevice::OnDevice(int device) {
  check_cuda(cudaGetDevice(&before_), "current device");
  if (before_ != device) check_cuda(cudaSetDevice(device), "choice of device");
}

OnDevice::~OnDevice() { cudaSetDevice(before_); }

NcclComm::NcclComm(Group& host, int device, double timeout_seconds)
    : nccl_(NcclLibrary::load()),
      exceptions_(std::uncaught_exceptions()),
      host_(host),
      device_(device),
      timeout_seconds_(timeout_seconds) {
  const OnDevice scope(device_);
  ncclUniqueId id = {};
  if (host_.rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  host_.broadcast(&id, sizeof id, 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(nccl_.comm_init(&comm_, host_.size(), id, host_.rank(), &config), "ncclCommInitRankConfig");
  settle();
  check_cuda(cudaEventCreateWithFlags(&watched_.event, cudaEventDisableTiming), "event");
  check_cuda(cudaEventCreateWithFlags(&latest_.event, cudaEventDisableTiming), "event");
  watch_ = std::thread([this] { watch(); });
}

// Peers that never come to the end are waited for until the limit, as in any operation. A rank that goes because of an
// error waits for nobody: the error is to be told first.
NcclComm::~NcclComm() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  watch_.join();
  const OnDevice scope(device_);
  if (std::uncaught_exceptions() > exceptions_) break_up(place(), "this rank has failed");
  if (broken_.empty()) {
    try {
      check(nccl_.comm_finalize(comm_), "ncclCommFinalize");
      settle();
      nccl_.comm_destroy(comm_);
    } catch (const Error&) {
      if (broken_.empty()) break_up(place(), "it did not end");
    }
  }
  cudaEventDestroy(watched_.event);
  cudaEventDestroy(latest_.event);
}

void NcclComm::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(ErrorCode::resources, place() + ": " + what + ": " + nccl_.error_string(result));
}

std::string NcclComm::place() const {
  return "rank " + std::to_string(host_.rank()) + ", " + operation_ + " " + std::to_string(number_) + " of NCCL";
}

double NcclComm::set_timeout(double seconds) {
  const std::scoped_lock lock(mutex_);
  return std::exchange(timeout_seconds_, seconds);
}

void NcclComm::enter(const char* name) {
  const std::scoped_lock lock(mutex_);
  if (!broken_.empty()) fail(ErrorCode::resources, "the group of GPUs can't be used any more: " + broken_);
  operation_ = name;
  ++number_;
}

void NcclComm::enqueue(cudaStream_t stream, FunctionRef<void()> calls) {
  {
    const std::scoped_lock lock(mutex_);
    if (!broken_.empty()) fail(ErrorCode::resources, broken_);
    check(nccl_.group_start(), "ncclGroupStart");
    try {
      calls();
    } catch (const Error&) {
      nccl_.group_end();
      throw;
    }
    check(nccl_.group_end(), "ncclGroupEnd");
  }
  settle();
  note(stream);
}

void NcclComm::settle() {
  Patience patience(timeout_seconds_);
  for (;;) {
    {
      const std::scoped_lock lock(mutex_);
      if (!broken_.empty()) fail(ErrorCode::resources, broken_);
      ncclResult_t state = ncclSuccess;
      check(nccl_.comm_state(comm_, &state), "ncclCommGetAsyncError");
      check(state, "asynchronous error");
      if (state == ncclSuccess) return;
    }
    const bool in_time = patience.pause();
    const std::string gone = in_time && !patience.look_around() ? "" : host_.gone_peers();
    if (in_time && gone.empty()) continue;
    const std::scoped_lock lock(mutex_);
    break_up(place(), in_time ? "a rank is gone" : "no end within the limit");
    fail(ErrorCode::resources, broken_);
  }
}

// An operation that is captured into a graph is not under way.
void NcclComm::note(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &capture), "state of a stream");
  if (capture != cudaStreamCaptureStatusNone) return;
  const std::scoped_lock lock(mutex_);
  Pending& pending = watched_.active ? latest_ : watched_;
  check_cuda(cudaEventRecord(pending.event, stream), "event of an operation");
  pending.since_us = host_clock_us();
  pending.name = place();
  pending.active = true;
}

void NcclComm::watch() {
  cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (!ended_ && look()) changed_.wait_for(lock, std::chrono::milliseconds(100));
}

bool NcclComm::look() {
  if (!broken_.empty()) return false;
  if (!watched_.active) return true;
  if (cudaEventQuery(watched_.event) == cudaSuccess) {
    watched_.active = false;
    std::swap(watched_, latest_);
    return true;
  }
  const double waited_us = static_cast<double>(host_clock_us() - watched_.since_us);
  const bool late = waited_us > timeout_seconds_ * 1e6;
  if (!late && host_.gone_peers().empty()) return true;
  if (!late && waited_us < 1e6) return true;  // what a peer sent before it left still arrives
  break_up(watched_.name, late ? "no end within the limit" : "a rank is gone");
  return false;
}

// Kernels of the operation end, so that nobody waits for the stream for ever. The mutex is held.
void NcclComm::break_up(const std::string& where, const std::string& why) {
  if (!broken_.empty()) return;  // the watch and a caller may find the same
  const std::string gone = host_.gone_peers();
  broken_ = where + ": " + why + "; expected every rank to take part" + (gone.empty() ? "" : ", but " + gone) +
            "; look for the other ranks' own messages";
  nccl_.comm_abort(comm_);
}

}  // namespace sluice::comm
