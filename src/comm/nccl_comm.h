// One NCCL communicator with a limit: used by nccl.cc, one a group.
//
// Owned by its group; used by the group's thread, and watched by a thread of its own, which aborts the communicator
// when enqueued work does not complete within the limit or a peer is gone. After that every call throws what happened.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/group.h"
#include "comm/nccl_library.h"
#include "core/function_ref.h"

namespace sluice::comm {

// Throws Error(resources) for anything but success.
void check_cuda(cudaError_t status, const char* what);

// Makes the rank's GPU current for this thread and gives back the one before.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

class NcclComm {
 public:
  // Collective over `host`; returns when all ranks have joined.
  NcclComm(Group& host, int device, double timeout_seconds);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  const NcclLibrary& nccl() const { return nccl_; }
  ncclComm_t handle() const { return comm_; }
  double set_timeout(double seconds);

  // Counts an operation; throws when the communicator was aborted.
  void enter(const char* name);
  // Calls NCCL inside one group; returns when what it calls is enqueued on `stream`. Throws on the first failure.
  void enqueue(cudaStream_t stream, FunctionRef<void()> calls);
  // For use inside `calls`.
  void check(ncclResult_t result, const char* what) const;

 private:
  // Work on a stream up to an event.
  struct Pending {
    cudaEvent_t event = nullptr;
    std::int64_t since_us = 0;
    std::string name;
    bool active = false;
  };

  void settle();  // until the communicator has no host work under way
  void note(cudaStream_t stream);
  void watch();
  bool look();  // false when the watch is over
  void break_up(const std::string& where, const std::string& why);
  std::string place() const;

  NcclLibrary nccl_;
  const int exceptions_;  // under way when this was made
  Group& host_;
  int device_;
  ncclComm_t comm_ = nullptr;
  std::string operation_ = "start";
  std::uint64_t number_ = 0;

  std::mutex mutex_;  // of what follows, and of every call of NCCL
  std::condition_variable changed_;
  double timeout_seconds_;
  std::string broken_;
  bool ended_ = false;
  Pending watched_, latest_;
  std::thread watch_;
};

}  // namespace sluice::comm
