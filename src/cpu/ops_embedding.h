// Embedding table: rows looked up by token id.
//
// Made at load time by CpuBackend::prepare_embedding, constant afterwards.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

class CpuEmbedding final : public DenseWeight {
 public:
  // Copies the table: bf16 as it is, everything else decoded to f32, which loses nothing.
  CpuEmbedding(const QuantTensor& table, ThreadPool& pool);

  // out [T, cols] f32. Throws Error(usage) for an id outside the table.
  void look_up(const std::int32_t* ids, const TensorView& out, const OpsKernels& kernels, ThreadPool& pool) const;

 private:
  void copy_rows(const QuantTensor& table, std::int64_t begin, std::int64_t end);

  DType dtype_;
  Buffer rows_;  // [rows, cols] bf16 or f32
};

const CpuEmbedding& own_embedding(const DenseWeight& table);

}  // namespace sluice::cpu
