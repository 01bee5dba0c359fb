// Prepares the tensors of one layer, those parts of them that a rank holds, and counts what they take.
//
// Made by decoder_load*.cc for one layer, used by one thread at load time. Owns nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/decoder_parts.h"
#include "model/rank_part.h"
#include "model/roles.h"

namespace sluice::model {

class LayerLoader {
 public:
  LayerLoader(ckpt::WeightSource& source, const DecoderOptions& options, std::int64_t layer, std::int64_t& bytes)
      : source_(source), options_(options), layer_(layer), bytes_(bytes) {}

  // In the recipe that the file asks for, or f32.
  std::unique_ptr<DenseWeight> dense(Role role, const Extent& rows, const Extent& cols);
  std::unique_ptr<DenseWeight> dense(Role role, const Extent& rows, const Extent& cols, Recipe recipe);
  // The router, whose NaN routing would hide: it gives such a row no weight and the answer would only be wrong.
  std::unique_ptr<DenseWeight> router(std::int64_t experts, std::int64_t cols);
  QuantTensor tensor(Role role, std::int64_t rows, std::int64_t cols);
  std::unique_ptr<DenseWeight> heads(const std::vector<QuantTensor>& weights);
  Buffer vector(Role role, const Extent& cols);
  // Of a tensor that other ranks hold: its header is checked, and it counts as used.
  void leave(Role role, std::int64_t rows, std::int64_t cols) { tensor(role, rows, cols); }

 private:
  std::unique_ptr<DenseWeight> prepared(const QuantTensor& values, Recipe recipe);
  void require_finite(Role role, const QuantTensor& values) const;

  ckpt::WeightSource& source_;
  const DecoderOptions& options_;
  std::int64_t layer_;
  std::int64_t& bytes_;
};

// `a` is of the whole model.
AttentionWeights load_attention(LayerLoader& load, const AttentionSpec& a, const AttentionPart& part,
                                std::int64_t hidden);

}  // namespace sluice::model
