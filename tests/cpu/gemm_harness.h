// Shared by the tests of the CPU GEMM kernels: which instruction sets can be tested here, and random operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/dense.h"
#include "cpu/features.h"
#include "moe/random_layer.h"
#include "moe/weights.h"
#include "numerics/bf16.h"

namespace sluice::cpu::testing {

inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (supports(detect_features(), isa)) isas.push_back(isa);
  }
  return isas;
}

inline std::string isa_label(Isa isa) {
  std::string name(isa_name(isa));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

// A dense [rows, cols] matrix of f32 values and the same in its storage type.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::bf16;
  std::vector<float> values;  // what the storage holds, exactly
  std::vector<std::byte> storage;

  const float* row(std::int64_t r) const { return values.data() + r * cols; }
  QuantTensor weight() const { return {{storage.data(), dtype, rows, cols, cols, 1}, {}, 1.0f}; }
  ConstTensorView view() const { return dense_view(storage.data(), dtype, rows, cols); }
};

inline Matrix random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed) {
  Matrix m{rows, cols, dtype, {}, {}};
  m.values.resize(static_cast<std::size_t>(rows * cols));
  m.storage.resize(static_cast<std::size_t>(dtype_bytes(dtype, rows * cols)));
  sluice::testing::Random random(seed);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const float v = random.symmetric(1.0f);
    m.values[static_cast<std::size_t>(i)] = dtype == DType::bf16 ? round_to_bf16(v) : v;
    sluice::testing::detail::store(m.storage.data(), dtype, i, v);
  }
  return m;
}

struct LinearCase {
  DType y = DType::f32;
  const float* bias = nullptr;
  const std::vector<float>* add_to = nullptr;  // accumulate onto these
};

// y = x W^T through the public functions, as f32. Output and workspace start as NaN.
inline std::vector<float> run_linear(Isa isa, ThreadPool& pool, const PackedDense& weight, const ConstTensorView& x,
                                     const LinearCase& c = {}) {
  const auto count = static_cast<std::size_t>(x.rows * weight.rows);
  std::vector<float> y(count, __builtin_nanf(""));
  std::vector<Bf16> y_bf16(count, Bf16{0x7FC0});
  if (c.add_to != nullptr) y = *c.add_to;
  const Buffer scratch = host_buffer(linear_workspace_bytes(x.rows, x.cols) + 64);
  std::fill_n(scratch.as<std::uint32_t>(), scratch.bytes() / 4, 0x7FC00000u);
  Workspace workspace(scratch.data(), scratch.bytes());
  LinearArgs args;
  args.x = x;
  args.weight = &weight;
  args.bias = c.bias;
  void* out = c.y == DType::f32 ? static_cast<void*>(y.data()) : y_bf16.data();
  args.y = dense_view(out, c.y, x.rows, weight.rows);
  args.accumulate = c.add_to != nullptr;
  linear(gemm_kernels(isa), pool, args, workspace);
  for (std::size_t i = 0; c.y == DType::bf16 && i < count; ++i) y[i] = to_float(y_bf16[i]);
  return y;
}

}  // namespace sluice::cpu::testing
