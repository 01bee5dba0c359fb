// Arrays in device memory for tests, with guards before and behind: whatever writes outside is found by intact(). What
// is poisoned or uploaded is there for any stream: a poison that came late once met a run on another stream, which then
// waited for ever for counters that it had destroyed.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/buffers.h"
#include "cuda/status.h"

namespace sluice::gpu_tests {

template <class T>
class DeviceArray {
 public:
  static constexpr std::size_t kGuardBytes = 4096;
  static constexpr unsigned char kPoison = 0xFF;  // a NaN of every float type, -1 of every integer

  DeviceArray() = default;
  // Not initialised but poisoned.
  explicit DeviceArray(std::int64_t count) : count_(count), memory_(cuda::device_buffer(bytes() + 2 * kGuardBytes, 0)) {
    cuda::fill_device(memory_.data(), kPoison, memory_.bytes(), "poisoning an array");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(static_cast<std::int64_t>(values.size())) {
    upload(values);
  }

  T* data() const { return reinterpret_cast<T*>(memory_.as<std::byte>() + kGuardBytes); }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  void poison() const { cuda::fill_device(data(), kPoison, bytes(), "poisoning an array"); }
  void upload(const std::vector<T>& values) const {
    cuda::copy_to_device(data(), values.data(), values.size() * sizeof(T), "upload");
  }
  std::vector<T> download(std::int64_t first = 0, std::int64_t count = -1) const {
    std::vector<T> out(static_cast<std::size_t>(count < 0 ? count_ - first : count));
    cuda::check(cudaMemcpy(out.data(), data() + first, out.size() * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return out;
  }
  bool intact() const {
    std::vector<unsigned char> guard(2 * kGuardBytes);
    cuda::check(cudaMemcpy(guard.data(), memory_.data(), kGuardBytes, cudaMemcpyDeviceToHost), "download");
    cuda::check(cudaMemcpy(guard.data() + kGuardBytes, reinterpret_cast<const std::byte*>(data()) + bytes(),
                           kGuardBytes, cudaMemcpyDeviceToHost),
                "download");
    return std::all_of(guard.begin(), guard.end(), [](unsigned char c) { return c == kPoison; });
  }

 private:
  std::int64_t count_ = 0;
  Buffer memory_;
};

}  // namespace sluice::gpu_tests
