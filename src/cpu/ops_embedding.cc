#include "cpu/ops_embedding.h"

#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "cpu/ops_apply.h"
#include "cpu/pieces.h"
#include "moe/weights.h"

namespace sluice::cpu {
namespace {

bool plain_bf16(const QuantTensor& t) {
  return t.codes.dtype == DType::bf16 && t.codes.col_stride == 1 && t.block_scale.data == nullptr &&
         t.tensor_scale == 1.0f;
}

}  // namespace

CpuEmbedding::CpuEmbedding(const QuantTensor& table, ThreadPool& pool)
    : dtype_(plain_bf16(table) ? DType::bf16 : DType::f32) {
  rows = table.codes.rows;
  cols = table.codes.cols;
  resident_bytes = dtype_bytes(dtype_, rows * cols);
  rows_ = host_buffer(static_cast<std::size_t>(resident_bytes));
  const std::vector<std::int64_t> pieces = packing_pieces(rows, resident_bytes, pool.size());
  // One thread is given all pieces at once, which still must not keep the whole table mapped.
  pool.parallel_for(std::ssize(pieces) - 1, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) copy_rows(table, pieces[i], pieces[i + 1]);
  });
}

void CpuEmbedding::copy_rows(const QuantTensor& table, std::int64_t begin, std::int64_t end) {
  const std::int64_t row_bytes = dtype_bytes(dtype_, cols);
  take_huge_pages(rows_, static_cast<std::size_t>(begin * row_bytes), static_cast<std::size_t>(end * row_bytes));
  for (std::int64_t r = begin; r < end; ++r) {
    if (dtype_ == DType::bf16) {
      const auto* from = static_cast<const std::uint16_t*>(table.codes.data) + r * table.codes.row_stride;
      std::memcpy(rows_.as<std::uint16_t>() + r * cols, from, static_cast<std::size_t>(cols) * sizeof(std::uint16_t));
    } else {
      decode_row(table, r, rows_.as<float>() + r * cols);
    }
  }
  release_rows(table, begin, end);
}

void CpuEmbedding::look_up(const std::int32_t* ids, const TensorView& out, const OpsKernels& kernels,
                           ThreadPool& pool) const {
  if (out.dtype != DType::f32 || out.cols != cols) {
    fail(ErrorCode::usage, "embedding into a tensor of another type or width",
         "f32, " + std::to_string(cols) + " columns");
  }
  pool.parallel_for(out.rows, rows_per_task(cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (ids[t] < 0 || ids[t] >= rows) {
        fail(ErrorCode::usage, "token id " + std::to_string(ids[t]), "0 to " + std::to_string(rows - 1));
      }
      if (dtype_ == DType::bf16) {
        kernels.widen(rows_.as<std::uint16_t>() + ids[t] * cols, out.row<float>(t), cols);
      } else {
        std::memcpy(out.row<float>(t), rows_.as<float>() + ids[t] * cols,
                    static_cast<std::size_t>(cols) * sizeof(float));
      }
    }
  });
}

const CpuEmbedding& own_embedding(const DenseWeight& table) {
  const auto* own = dynamic_cast<const CpuEmbedding*>(&table);
  if (own == nullptr) fail(ErrorCode::usage, "embedding table of another backend", "one from prepare_embedding");
  return *own;
}

}  // namespace sluice::cpu
