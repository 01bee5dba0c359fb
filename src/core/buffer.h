// Owner of one block of memory on a device. Move-only. Made by Backend::alloc, or by host_buffer for host memory.
#pragma once

#include <cstddef>
#include <utility>

#include "core/device.h"

namespace sluice {

class Buffer {
 public:
  using Deleter = void (*)(void* data, std::size_t bytes);

  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Device device, Deleter deleter)
      : data_(data), bytes_(bytes), device_(device), deleter_(deleter) {}
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    Buffer moved(std::move(o));
    swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void swap(Buffer& o) {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(device_, o.device_);
    std::swap(deleter_, o.deleter_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  Deleter deleter_ = nullptr;
};

// Zeroed host memory from mmap, aligned to a page and in huge pages where there are any and it holds whole ones.
// Throws Error(resources) naming the size.
Buffer host_buffer(std::size_t bytes);

// Takes the huge pages of a buffer of host_buffer that hold bytes begin to end - 1, each from its end. Linux clears a
// new huge page towards the place that is used first: for one that is written from its beginning on that is page by
// page backwards, which takes up to twice as long as forwards. Changes no byte; without huge pages it does nothing of
// use. Cost: a system call for each.
void take_huge_pages(const Buffer& buffer, std::size_t begin, std::size_t end);

}  // namespace sluice
