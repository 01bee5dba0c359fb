// How a line of a K panel (64 bytes: one column, or two columns of bf16, of 16 keys) enters the scores. A policy has
// pack, which prepares a query row, and Line: its form in registers and its step. Internal linkage throughout.
#pragma once

#include <cstdint>

namespace sluice::cpu {
namespace {

// f32 keys: one column a line.
struct DotF32 {
  static constexpr int kColumnsPerLine = 1;
  static void pack(const float* query, int head_dim, int dims, float* out) {
    for (int c = 0; c < dims; c += 16)
      store(out + c, c < head_dim ? load_some(query + c, min_int(16, head_dim - c)) : zero());
  }
  static int min_int(int a, int b) { return a < b ? a : b; }

  struct Line {
    V key;
    explicit Line(const void* p) : key(load(static_cast<const float*>(p))) {}
    V step(V acc, const float* query, int line) const { return fma(broadcast(query[line]), key, acc); }
  };
};

// bf16 keys without an instruction for them: the two columns of a line one after the other, in f32.
struct DotBf16Split {
  static constexpr int kColumnsPerLine = 2;
  static void pack(const float* query, int head_dim, int dims, float* out) {
    DotF32::pack(query, head_dim, dims, out);
    for (int c = 0; c < dims; c += 16) {
      std::uint16_t rounded[16];
      store_bf16(rounded, load(out + c));
      store(out + c, load_bf16(rounded));
    }
  }

  struct Line {
    V even, odd;
    explicit Line(const void* p) { load_pairs(p, even, odd); }
    V step(V acc, const float* query, int line) const {
      acc = fma(broadcast(query[2 * line]), even, acc);
      return fma(broadcast(query[2 * line + 1]), odd, acc);
    }
  };
};

}  // namespace
}  // namespace sluice::cpu
