// A token on the wire: its hidden row, plain or as NVFP4 codes with linear scales, with k slot ids and weights behind
// it. Records lie at one pitch, so that a runner reads the rows where they arrived.
//
// Used by the dispatchers that move tokens. Host memory; no state: thread-safe.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "moe/ids.h"
#include "moe/runner.h"

namespace sluice {

struct RecordFormat {
  DType dtype = DType::bf16;  // of plain rows
  std::int64_t width = 0;     // W
  std::int32_t top_k = 0;     // k
  float encode_scale = 0.0f;  // above zero: NVFP4, quantised with it

  bool nvfp4() const { return encode_scale > 0.0f; }
  std::int64_t payload_bytes() const;
  std::int64_t bytes() const;  // the pitch, a multiple of 16
};

// Records [0, rows) in `data`. Owns nothing.
struct Records {
  RecordFormat format;
  std::byte* data = nullptr;
  std::int64_t rows = 0;

  Records from(std::int64_t row) const { return {format, data + row * format.bytes(), rows - row}; }
  SlotId* ids(std::int64_t row) const;     // [k]
  float* weights(std::int64_t row) const;  // [k]
  ConstTensorView hidden() const;          // [rows, W], plain rows
  QuantizedRows quantized() const;         // NVFP4
};

// Quantises `row` [W] bf16 into the payload at `out`; `values` [W] is scratch.
void encode_payload(const RecordFormat& format, const ConstTensorView& hidden, std::int64_t row, float* values,
                    std::byte* out);

}  // namespace sluice
