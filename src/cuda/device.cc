#include "cuda/device.h"

#include "cuda/status.h"

namespace sluice::cuda {

int device_count(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // the answer is no error for the calls to come
    if (why != nullptr) *why = cudaGetErrorString(status);
    return 0;
  }
  if (count == 0 && why != nullptr) *why = "no GPU";
  return count;
}

DeviceInfo device_info(int index) {
  std::string why;
  const int count = device_count(&why);
  if (index < 0 || index >= count) {
    fail(ErrorCode::unsupported,
         "GPU " + std::to_string(index) + ": " +
             (count == 0 ? why : "there are " + std::to_string(count) + ", counted from 0"),
         "", "nvidia-smi lists the GPUs that the driver can use");
  }
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, index), "device properties");
  DeviceInfo info;
  info.index = index;
  info.name = p.name;
  info.major = p.major;
  info.minor = p.minor;
  info.processors = p.multiProcessorCount;
  info.memory_bytes = p.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(p.l2CacheSize);
  info.shared_bytes = p.sharedMemPerBlockOptin;
  return info;
}

DeviceScope::DeviceScope(int index) {
  check(cudaGetDevice(&before_), "current device");
  check(cudaSetDevice(index), "choosing a device");
}

DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

}  // namespace sluice::cuda
