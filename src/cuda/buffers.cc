#include "cuda/buffers.h"

#include <string>

#include "cuda/device.h"
#include "cuda/status.h"

namespace sluice::cuda {
namespace {

[[noreturn]] void out_of_memory(const std::string& kind, std::size_t bytes, cudaError_t status) {
  cudaGetLastError();
  fail(ErrorCode::resources, "cannot allocate " + std::to_string(bytes) + " bytes of " + kind, "",
       std::string(cudaGetErrorString(status)) + "; nvidia-smi shows who uses the memory");
}

}  // namespace

Buffer device_buffer(std::size_t bytes, int device) {
  if (bytes == 0) return {};
  const DeviceScope scope(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) out_of_memory("memory of GPU " + std::to_string(device), bytes, status);
  return {data, bytes, {DeviceKind::cuda, device}, [](void* p, std::size_t) { cudaFree(p); }};
}

void copy_to_device(void* to, const void* from, std::size_t bytes, const char* doing) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), doing);
  check(cudaStreamSynchronize(cudaStreamLegacy), doing);
}

void fill_device(void* to, int value, std::size_t bytes, const char* doing) {
  check(cudaMemset(to, value, bytes), doing);
  check(cudaStreamSynchronize(cudaStreamLegacy), doing);
}

Buffer pinned_buffer(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status != cudaSuccess) out_of_memory("page-locked host memory", bytes, status);
  return {data, bytes, {}, [](void* p, std::size_t) { cudaFreeHost(p); }};
}

}  // namespace sluice::cuda
