#include "cuda/decode_states.h"

#include "cuda/buffers.h"
#include "cuda/device.h"
#include "cuda/status.h"
#include "cuda/streams.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kLine = 128;
constexpr char kClearing[] = "clearing the state of the kernel for a few tokens";

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

DecodeStates::DecodeStates(std::int64_t h_bytes, std::int32_t sm_count, int device)
    : h_bytes_(whole_lines(h_bytes)),
      flag_bytes_(sm90::decode_flag_bytes(sm_count)),
      memory_(device_buffer(kStates * state_bytes(), device)) {
  const DeviceScope scope(device);
  const OwnedStream stream(device);  // others may be in use
  const std::size_t before_h = kLine + 2 * flag_bytes_;
  for (int i = 0; i < kStates; ++i) {
    std::byte* state = memory_.as<std::byte>() + static_cast<std::size_t>(i) * state_bytes();
    check(cudaMemsetAsync(state, 0, before_h, stream.get()), kClearing);
    check(cudaMemsetAsync(state + before_h, 0xFF, 2 * static_cast<std::size_t>(h_bytes_), stream.get()), kClearing);
  }
  stream.synchronize();
}

std::size_t DecodeStates::state_bytes() const {
  return kLine + 2 * flag_bytes_ + 2 * static_cast<std::size_t>(h_bytes_);
}

std::optional<sm90::DecodeState> DecodeStates::of(const void* workspace, std::int64_t h_bytes) {
  if (h_bytes > h_bytes_) return std::nullopt;
  for (int i = 0; i < kStates; ++i) {
    const void* owner = nullptr;
    if (owners_[i].compare_exchange_strong(owner, workspace) || owner == workspace) return at(i);
  }
  return std::nullopt;
}

sm90::DecodeState DecodeStates::at(int i) const {
  std::byte* state = memory_.as<std::byte>() + static_cast<std::size_t>(i) * state_bytes();
  std::byte* flags = state + kLine;
  return {reinterpret_cast<std::uint32_t*>(state), reinterpret_cast<std::uint32_t*>(flags), flags + 2 * flag_bytes_,
          h_bytes_};
}

}  // namespace sluice::cuda
