// Element types of tensors, in memory and in checkpoint files.
//
// Called by every layer. Pure functions on an enum: thread-safe, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  e4m3,
  e5m2,
  e8m0,
  e2m1,
  u8,
  i8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean
};

// Width of one element in bits; 4 for e2m1, whose elements are packed two a byte, even column in the low nibble.
int dtype_bits(DType type);

// Bytes that `elements` consecutive elements take (e2m1: rounded up to whole bytes).
std::int64_t dtype_bytes(DType type, std::int64_t elements);

// Our own short name ("bf16", "e4m3", ...), as printed in messages and accepted by flags.
std::string_view dtype_name(DType type);

}  // namespace sluice
