// What the tests of the CPU backend share: instruction sets of this processor, reproducible numbers, poisoned memory.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "numerics/bf16.h"

namespace sluice::cpu {

inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (supports(detect_features(), isa)) isas.push_back(isa);
  }
  return isas;
}

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  std::string name(isa_name(info.param));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

inline std::vector<float> normal_floats(std::size_t n, unsigned seed, float sigma = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

inline std::vector<float> poisoned_floats(std::size_t n) {
  return std::vector<float>(n, std::numeric_limits<float>::quiet_NaN());
}

template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& values) {
  static_assert(sizeof(T) == 4);
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(T));
  return bits;
}

inline ConstTensorView view(const std::vector<float>& v, std::int64_t rows, std::int64_t cols) {
  return dense_view(static_cast<const void*>(v.data()), DType::f32, rows, cols);
}
inline TensorView view(std::vector<float>& v, std::int64_t rows, std::int64_t cols) {
  return dense_view(v.data(), DType::f32, rows, cols);
}
inline TensorView view(std::vector<std::uint16_t>& v, std::int64_t rows, std::int64_t cols) {
  return dense_view(v.data(), DType::bf16, rows, cols);
}

// A workspace of exactly the size that a backend asks for, NaNs at first. Reused while the size stays the same: filling
// it for each of thousands of calls would take longer than the calls.
class PoisonedMemory {
 public:
  Workspace get(const Backend& backend, std::int64_t tokens, std::int64_t context, std::int64_t widest) {
    const std::size_t bytes = backend.workspace_bytes(tokens, context, widest);
    if (memory_.bytes() != bytes) {
      memory_ = host_buffer(bytes);
      if (bytes > 0) std::memset(memory_.data(), 0xFF, bytes);
    }
    return {memory_.data(), memory_.bytes()};
  }

 private:
  Buffer memory_;
};

// One backend for every instruction set, on a pool of its own.
class BackendTest : public testing::TestWithParam<Isa> {
 protected:
  static constexpr Stream kStream{};
  ThreadPool pool_{2};
  CpuBackend backend_{pool_, GetParam()};
};

}  // namespace sluice::cpu
