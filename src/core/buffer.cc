#include "core/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <string>

#include "core/error.h"

namespace sluice {
namespace {

constexpr std::size_t kHugePageBytes = 2u << 20;
constexpr std::size_t kPageBytes = 4096;

// Bytes that a buffer has mapped, whole pages.
std::size_t mapped_bytes(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

void unmap(void* data, std::size_t bytes) { munmap(data, mapped_bytes(bytes)); }

// nullptr when there is none. Begins where a huge page may, which the system sees to for some sizes only: a part of a
// huge page at either end is cleared in small pages, which takes four times as long for each byte.
void* map_for_huge_pages(std::size_t bytes) {
  const std::size_t size = mapped_bytes(bytes), all = size + kHugePageBytes;
  void* begin = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(begin);
  const std::size_t before =
      (kHugePageBytes - reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes) % kHugePageBytes;
  if (before != 0) munmap(first, before);
  munmap(first + before + size, all - before - size);
  // Advice only: without huge pages everything still works, TLB misses cost a few percent. A last part of one stays
  // small pages, so that memory grows by what is used.
  madvise(first + before, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return first + before;
}

void* map(std::size_t bytes) {
  void* data = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

Buffer host_buffer(std::size_t bytes) {
  if (bytes == 0) return {};
  const bool sensible = bytes <= std::numeric_limits<std::size_t>::max() / 2;  // so that no sum overflows
  void* data = !sensible ? nullptr : bytes >= kHugePageBytes ? map_for_huge_pages(bytes) : map(bytes);
  if (data == nullptr) {
    fail(ErrorCode::resources, "cannot allocate " + std::to_string(bytes) + " bytes of memory", "",
         "free memory or choose a smaller model, context or batch");
  }
  return {data, bytes, Device{}, unmap};
}

void take_huge_pages(const Buffer& buffer, std::size_t begin, std::size_t end) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE of Linux 5.14, newer than the headers of some systems
  auto* const data = buffer.as<std::byte>();
  for (std::size_t at = begin / kHugePageBytes * kHugePageBytes; at < end && at + kHugePageBytes <= buffer.bytes();
       at += kHugePageBytes) {
    madvise(data + at + kHugePageBytes - kPageBytes, kPageBytes, kPopulateWrite);
  }
}

}  // namespace sluice
