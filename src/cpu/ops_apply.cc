#include "cpu/ops_apply.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "core/error.h"
#include "numerics/bf16.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kElementsPerTask = 32768;

void check_shape(const ConstTensorView& x, std::int64_t rows, std::int64_t cols, const char* what) {
  if (x.rows == rows && x.cols == cols) return;
  fail(ErrorCode::usage, std::string(what) + " [" + std::to_string(x.rows) + ", " + std::to_string(x.cols) + "]",
       "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]");
}

void check_f32(const ConstTensorView& x, const char* what) {
  if (x.dtype != DType::f32) {
    fail(ErrorCode::usage, std::string(what) + " of type " + std::string(dtype_name(x.dtype)), "f32");
  }
}

void check_compute(const ConstTensorView& x, const char* what) {
  if (x.dtype != DType::f32 && x.dtype != DType::bf16) {
    fail(ErrorCode::usage, std::string(what) + " of type " + std::string(dtype_name(x.dtype)), "f32 or bf16");
  }
}

void check(const NormArgs& args) {
  check_f32(args.x, "input of rms_norm");
  if (args.out_f32) {
    check_f32(args.out_f32, "output of rms_norm");
    check_shape(args.out_f32, args.x.rows, args.x.cols, "output of rms_norm");
  }
  if (args.out_compute) {
    check_compute(args.out_compute, "output of rms_norm");
    check_shape(args.out_compute, args.x.rows, args.x.cols, "output of rms_norm");
  }
}

std::optional<VectorActivation> vector_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::swiglu:
      return VectorActivation::swiglu;
    case ActivationKind::geglu_tanh:
      return VectorActivation::geglu_tanh;
    case ActivationKind::swiglu_oai:
      return VectorActivation::swiglu_oai;
    case ActivationKind::swiglu_clamped:
      return VectorActivation::swiglu_clamped;
    case ActivationKind::swiglu_step:
      return VectorActivation::swiglu_step;
    case ActivationKind::relu2:
      return VectorActivation::relu2;
    case ActivationKind::geglu_erf:
    case ActivationKind::situ:
      break;
  }
  return std::nullopt;
}

void activate_slowly(const ActivationSpec& spec, const float* gate, const float* up, const TensorView& out,
                     std::int64_t r) {
  for (std::int64_t c = 0; c < out.cols; ++c) {
    const float y = activate(spec, gate != nullptr ? gate[c] : 0.0f, up[c]);
    if (out.dtype == DType::bf16) {
      out.row<std::uint16_t>(r)[c] = to_bf16(y).bits;
    } else {
      out.row<float>(r)[c] = y;
    }
  }
}

}  // namespace

std::int64_t rows_per_task(std::int64_t cols) {
  return cols >= kElementsPerTask ? 1 : kElementsPerTask / (cols + 1) + 1;
}

void norm_rows(const NormArgs& args, const OpsKernels& kernels, ThreadPool& pool) {
  check(args);
  const bool bf16 = args.out_compute && args.out_compute.dtype == DType::bf16;
  pool.parallel_for(args.x.rows, rows_per_task(args.x.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      NormRow row{.x = args.x.row<float>(r), .weight = args.weight, .epsilon = args.epsilon, .cols = args.x.cols};
      if (args.out_compute && !bf16) {  // before out_f32, which may overwrite x
        row.out_f32 = args.out_compute.row<float>(r);
        kernels.rms_norm(row);
      }
      row.out_f32 = args.out_f32 ? args.out_f32.row<float>(r) : nullptr;
      row.out_bf16 = bf16 ? args.out_compute.row<std::uint16_t>(r) : nullptr;
      if (row.out_f32 != nullptr || bf16) kernels.rms_norm(row);
    }
  });
}

void add_rows(const TensorView& into, const ConstTensorView& x, const OpsKernels& kernels, ThreadPool& pool) {
  check_f32(into, "sum of add");
  check_f32(x, "term of add");
  check_shape(x, into.rows, into.cols, "term of add");
  pool.parallel_for(into.rows, rows_per_task(into.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) kernels.add(into.row<float>(r), x.row<float>(r), into.cols);
  });
}

void add_gated_rows(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, ThreadPool& pool) {
  check_f32(into, "sum of add_gated");
  check_f32(x, "term of add_gated");
  check_f32(gate, "gate of add_gated");
  check_shape(x, into.rows, into.cols, "term of add_gated");
  check_shape(gate, into.rows, 1, "gate of add_gated");
  pool.parallel_for(into.rows, rows_per_task(into.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float scale = 1.0f / (1.0f + std::exp(-gate.row<float>(r)[0]));
      const float* term = x.row<float>(r);
      float* sum = into.row<float>(r);
      for (std::int64_t c = 0; c < into.cols; ++c) sum[c] += scale * term[c];
    }
  });
}

void activate_rows(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                   const TensorView& out, const OpsKernels& kernels, ThreadPool& pool) {
  const bool gated = is_gated(spec.kind);
  check_f32(up, "up of activate");
  check_shape(up, out.rows, out.cols, "up of activate");
  if (gated) {
    check_f32(gate, "gate of activate");
    check_shape(gate, out.rows, out.cols, "gate of activate");
  }
  check_compute(out, "output of activate");
  const std::optional<VectorActivation> kind = vector_kind(spec.kind);
  ActivateRow shared{.alpha = spec.alpha, .beta = spec.beta, .limit = spec.limit, .n = out.cols};
  if (kind) shared.kind = *kind;
  pool.parallel_for(out.rows, rows_per_task(out.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* g = gated ? gate.row<float>(r) : nullptr;
      if (!kind) {
        activate_slowly(spec, g, up.row<float>(r), out, r);
        continue;
      }
      ActivateRow row = shared;
      row.gate = g;
      row.up = up.row<float>(r);
      row.out_f32 = out.dtype == DType::f32 ? out.row<float>(r) : nullptr;
      row.out_bf16 = out.dtype == DType::bf16 ? out.row<std::uint16_t>(r) : nullptr;
      kernels.activate(row);
    }
  });
}

void copy_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, ThreadPool& pool) {
  if (x.dtype != out.dtype || x.cols != out.cols) {
    fail(ErrorCode::usage, "gather_rows between different types or widths", "the same type and number of columns");
  }
  const auto bytes = static_cast<std::size_t>(dtype_bytes(x.dtype, x.cols));
  const std::int64_t in_stride = dtype_bytes(x.dtype, x.row_stride);
  const std::int64_t out_stride = dtype_bytes(out.dtype, out.row_stride);
  pool.parallel_for(out.rows, rows_per_task(out.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (rows[i] < 0 || rows[i] >= x.rows) {
        fail(ErrorCode::usage, "gather_rows of row " + std::to_string(rows[i]), "below " + std::to_string(x.rows));
      }
      std::memcpy(static_cast<std::byte*>(out.data) + i * out_stride,
                  static_cast<const std::byte*>(x.data) + rows[i] * in_stride, bytes);
    }
  });
}

}  // namespace sluice::cpu
