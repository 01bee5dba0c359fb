// What the GPUs of this machine are, asked of the runtime library, which loads the driver when it is first called. The
// same program therefore starts where there is no driver, and says so.
//
// Called by the backend, the runner and the bench. No state but that of the runtime; thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;      // compute capability
  int processors = 0;            // multiprocessors
  std::size_t memory_bytes = 0;  // of device memory
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes = 0;  // most that one block can have

  bool hopper() const { return major == 9; }  // kernels of sm90/ run on 9.0 only
};

// GPUs that the runtime can use; 0 with the reason in `why` (may be nullptr) when there is none.
int device_count(std::string* why);

// Throws Error(unsupported) for an index that is not there.
DeviceInfo device_info(int index);

// Makes a GPU current for this thread and gives back the one before.
class DeviceScope {
 public:
  explicit DeviceScope(int index);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace sluice::cuda
