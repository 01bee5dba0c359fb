#include "cpu/slot_sum.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "cpu/ops_apply.h"

namespace sluice::cpu {
namespace {

constexpr std::int32_t kMostSlots = 64;

// Rows and weights of the slots of one token that are not skipped.
struct TokenSlots {
  const void* rows[kMostSlots];
  float weights[kMostSlots];
  int count = 0;
};

void require(bool ok, const std::string& what, const char* expected) {
  if (!ok) fail(ErrorCode::usage, "sum_slot_rows: " + what, expected);
}

void check(const SlotSumArgs& args) {
  const DType rows = args.rows.dtype, out = args.out.dtype;
  require(rows == DType::bf16 || rows == DType::f32, "rows are " + std::string(dtype_name(rows)), "bf16 or f32");
  require(out == DType::f32 || (out == DType::bf16 && rows == DType::bf16),
          "out is " + std::string(dtype_name(out)) + " for rows in " + std::string(dtype_name(rows)),
          "f32, or bf16 for rows in bf16");
  require(args.rows.cols == args.out.cols, "rows and out differ in width", "the same number of columns");
  require(args.top_k >= 1 && args.top_k <= kMostSlots, std::to_string(args.top_k) + " slots", "1 to 64");
}

void collect(const SlotSumArgs& args, std::int64_t t, TokenSlots& slots) {
  slots.count = 0;
  for (std::int64_t r = t * args.top_k; r < (t + 1) * args.top_k; ++r) {
    const std::int32_t row = args.row_of[r];
    if (row < 0) continue;
    require(row < args.rows.rows, "row " + std::to_string(row), "a row that is there");
    slots.rows[slots.count] =
        static_cast<const std::byte*>(args.rows.data) + dtype_bytes(args.rows.dtype, row * args.rows.row_stride);
    slots.weights[slots.count++] = args.weights != nullptr ? args.weights[r] : 1.0f;
  }
}

void sum_f32(const TokenSlots& slots, std::int64_t cols, float* out) {
  std::fill_n(out, cols, 0.0f);
  for (int s = 0; s < slots.count; ++s) {
    const auto* row = static_cast<const float*>(slots.rows[s]);
    for (std::int64_t c = 0; c < cols; ++c) out[c] += slots.weights[s] * row[c];
  }
}

void sum_bf16(const TokenSlots& slots, const TensorView& out, std::int64_t t, const GemmKernels& kernels) {
  CombineArgs c;
  c.rows = slots.rows;
  c.weights = slots.weights;
  c.slots = slots.count;
  c.columns = out.cols;
  c.to = out.dtype == DType::bf16 ? Element::bf16 : Element::f32;
  c.out = static_cast<std::byte*>(out.data) + dtype_bytes(out.dtype, t * out.row_stride);
  kernels.combine(c);
}

}  // namespace

void sum_slot_rows(const SlotSumArgs& args, const GemmKernels& kernels, ThreadPool& pool) {
  check(args);
  pool.parallel_for(args.out.rows, rows_per_task(args.out.cols), [&](std::int64_t begin, std::int64_t end, int) {
    TokenSlots slots;
    for (std::int64_t t = begin; t < end; ++t) {
      collect(args, t, slots);
      if (args.rows.dtype == DType::bf16) {
        sum_bf16(slots, args.out, t, kernels);
      } else {
        sum_f32(slots, args.out.cols, args.out.row<float>(t));
      }
    }
  });
}

}  // namespace sluice::cpu
