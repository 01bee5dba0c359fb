// The input is a safetensors file: it is refused with Error, or every tensor lies inside it and no two overlap.
#include <cstddef>
#include <cstdint>

#include "checkpoint/check.h"
#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// Reads every byte of every tensor, so that the sanitizer sees a wrong bound.
void read_tensors(const sluice::ckpt::SafetensorsHeader& header, std::span<const std::byte> file) {
  std::uint64_t end = header.data_begin_bytes;
  for (sluice::ckpt::TensorEntry t : header.tensors) {
    require(t.offset_bytes == end);
    require(t.bytes <= file.size() - t.offset_bytes);
    end = t.offset_bytes + t.bytes;
    t.data = file.data() + t.offset_bytes;
    const sluice::ckpt::NonFiniteCount count = sluice::ckpt::count_non_finite(t);
    require(count.nan + count.infinite <= static_cast<std::int64_t>(t.bytes));
    require(!sluice::ckpt::shape_text(t.shape).empty());
  }
  require(end == file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), bytes);
  try {
    read_tensors(sluice::ckpt::parse_header(file, file.size(), "input"), file);
  } catch (const sluice::Error& e) {
    require(e.code() == sluice::ErrorCode::bad_input);
  }
  return 0;
}
