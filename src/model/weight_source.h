// Where a decoder gets its weights from, by role. Tensor names end below this interface (checkpoint/ and the family's
// name map), so that the decoder can also be fed from memory or from another rank.
//
// Called at load time, by one thread, layer by layer in ascending order. Views stay valid while the source lives, and
// their pages may be given back with `release` once a layer is prepared: they can be read again, at the cost of the
// disk.
#pragma once

#include <cstdint>
#include <string_view>

#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice::model {

enum class Role : std::uint8_t {
  embedding,       // [V, H]
  final_norm,      // [1, H]
  output,          // [V, H]; absent when embeddings are tied
  attention_norm,  // [1, H]
  q,
  k,
  v,  // [heads * head_dim, H]
  o,  // [H, heads * head_dim]
  q_bias,
  k_bias,
  v_bias,
  o_bias,
  q_norm,
  k_norm,           // [1, head_dim]
  sinks,            // [1, heads]
  ffn_norm,         // [1, H]
  router,           // [E, H]
  router_bias,      // [1, E], added to the logits
  correction_bias,  // [1, E], selection only
  gate,
  up,    // dense FFN, [I, H]
  down,  // dense FFN, [H, I]
};

std::string_view role_name(Role role);

inline constexpr std::int64_t kNoLayer = -1;

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensor of `role`, checked to be [rows, cols]. `layer` is kNoLayer for embedding, final_norm and output. Throws
  // Error(bad_input) naming the tensor when it is missing or has another shape or type.
  virtual QuantTensor tensor(Role role, std::int64_t layer, std::int64_t rows, std::int64_t cols) = 0;

  // The experts of a MoE layer, checked against `spec`.
  virtual ExpertWeights experts(std::int64_t layer, const LayerSpec& spec) = 0;

  // Gives back the memory of the pages behind the layer's tensors (kNoLayer: behind those outside all layers).
  virtual void release(std::int64_t layer) = 0;

  // Bytes of the layer's tensors in the files, for progress; 0 when not known.
  virtual std::uint64_t bytes(std::int64_t layer) const = 0;
};

}  // namespace sluice::model
