// Where memory lives and work runs, and the order of work on it. Plain data.
#pragma once

#include <cstdint>

namespace sluice {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// A queue of work of one backend, passed in by the caller and never created by an operation. On the CPU work is done
// when the call returns and the handle stays null; on CUDA the handle is a cudaStream_t.
struct Stream {
  void* handle = nullptr;
};

}  // namespace sluice
