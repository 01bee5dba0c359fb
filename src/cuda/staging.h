// Upload of weights: two page-locked blocks, one being filled by the processor while the other is on its way.
//
// Used by prepare and reload, one object for one stream and one thread at a time. Owns the blocks; their size bounds
// the host memory of a load, whatever the size of the weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/function_ref.h"
#include "cuda/streams.h"

namespace sluice::cuda {

class StagingUpload {
 public:
  static constexpr std::size_t kBlockBytes = 32u << 20;

  // Copies are ordered on `stream`, which the caller keeps.
  explicit StagingUpload(cudaStream_t stream, std::size_t block_bytes = kBlockBytes);
  ~StagingUpload();  // waits for copies under way
  StagingUpload(const StagingUpload&) = delete;
  StagingUpload& operator=(const StagingUpload&) = delete;

  // dst [count, unit_bytes] in device memory; fill(to, first, n) writes units [first, first + n) densely to host
  // memory. Throws Error(resources) when one unit is larger than a block.
  void upload(void* dst, std::int64_t count, std::size_t unit_bytes,
              FunctionRef<void(std::byte* to, std::int64_t first, std::int64_t n)> fill);

 private:
  struct Block {
    Buffer memory;
    Event sent;
    bool busy = false;
  };

  cudaStream_t stream_;
  std::size_t block_bytes_;
  std::array<Block, 2> blocks_;
  std::size_t next_ = 0;
};

}  // namespace sluice::cuda
