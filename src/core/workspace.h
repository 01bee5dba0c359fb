// A bump allocator over memory that the caller owns: operations take scratch space from it instead of allocating.
//
// Not thread-safe: one workspace per stream. Scope restores the mark, so nested operations give back what they took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"

namespace sluice {

class Workspace {
 public:
  static constexpr std::size_t kAlignBytes = 64;

  Workspace() = default;
  Workspace(void* data, std::size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}

  // Where it begins, whatever was taken.
  const void* data() const { return data_; }

  // `count` elements of T, 64-byte aligned, not initialised. Throws Error(resources) when the workspace is too small,
  // which means that a workspace_bytes() of some operation is wrong.
  template <class T>
  T* take(std::int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  void* take_bytes(std::size_t bytes) {
    const std::size_t rounded = rounded_bytes(bytes);
    if (rounded > bytes_ - used_) {
      fail(ErrorCode::resources, "workspace too small: " + std::to_string(bytes) + " bytes asked, " +
                                     std::to_string(bytes_ - used_) + " left");
    }
    void* p = data_ + used_;
    used_ += rounded;
    return p;
  }

  // What take_bytes(bytes) uses up; for computing workspace_bytes().
  static constexpr std::size_t rounded_bytes(std::size_t bytes) {
    return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  }

  class Scope {
   public:
    explicit Scope(Workspace& w) : workspace_(w), mark_(w.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::size_t mark_;
  };

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
};

}  // namespace sluice
