#include "cuda/staging.h"

#include <algorithm>
#include <string>

#include "cuda/buffers.h"
#include "cuda/status.h"

namespace sluice::cuda {

StagingUpload::StagingUpload(cudaStream_t stream, std::size_t block_bytes)
    : stream_(stream), block_bytes_(block_bytes) {
  for (Block& block : blocks_) block.memory = pinned_buffer(block_bytes);
}

StagingUpload::~StagingUpload() { cudaStreamSynchronize(stream_); }

void StagingUpload::upload(void* dst, std::int64_t count, std::size_t unit_bytes,
                           FunctionRef<void(std::byte* to, std::int64_t first, std::int64_t n)> fill) {
  if (count == 0 || unit_bytes == 0) return;
  const auto units = static_cast<std::int64_t>(block_bytes_ / unit_bytes);
  if (units == 0) {
    fail(ErrorCode::resources, "a weight row of " + std::to_string(unit_bytes) + " bytes does not fit a staging block",
         "at most " + std::to_string(block_bytes_) + " bytes");
  }
  for (std::int64_t first = 0; first < count; first += units) {
    const std::int64_t n = std::min(units, count - first);
    Block& block = blocks_[next_];
    next_ = 1 - next_;
    if (block.busy) block.sent.synchronize();
    fill(block.memory.as<std::byte>(), first, n);
    auto* to = static_cast<std::byte*>(dst) + static_cast<std::size_t>(first) * unit_bytes;
    check(cudaMemcpyAsync(to, block.memory.data(), static_cast<std::size_t>(n) * unit_bytes, cudaMemcpyHostToDevice,
                          stream_),
          "uploading weights");
    block.sent.record(stream_);
    block.busy = true;
  }
}

}  // namespace sluice::cuda
