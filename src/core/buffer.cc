#include "core/buffer.h"

#include <sys/mman.h>

#include <string>

#include "core/error.h"

namespace sluice {
namespace {

constexpr std::size_t kHugePageThresholdBytes = 4u << 20;

void unmap(void* data, std::size_t bytes) { munmap(data, bytes); }

}  // namespace

Buffer host_buffer(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    fail(ErrorCode::resources, "cannot allocate " + std::to_string(bytes) + " bytes of memory", "",
         "free memory or choose a smaller model, context or batch");
  }
  // Advice only: without huge pages everything still works, TLB misses cost a few percent.
  if (bytes >= kHugePageThresholdBytes) madvise(data, bytes, MADV_HUGEPAGE);
  return {data, bytes, Device{}, unmap};
}

}  // namespace sluice
