// What a decoder holds: the prepared weights of every layer, those of this rank's part. Shared by decoder.cc (forward)
// and decoder_load.cc only.
//
// Filled once by load_decoder, constant afterwards. Owns all device memory of the weights.
#pragma once

#include <memory>
#include <vector>

#include "model/decoder.h"
#include "model/rank_columns.h"

namespace sluice::model {

// Latent attention. keys and values are the parts of kv_b, one weight a head: keys[h] = its key rows transposed,
// [kv_lora_rank, nope], values[h] = its value rows, [v, kv_lora_rank].
struct LatentWeights {
  std::unique_ptr<DenseWeight> q;         // [heads * (nope + rope), H], or
  std::unique_ptr<DenseWeight> q_a, q_b;  // [q_lora_rank, H], [heads * (nope + rope), q_lora_rank]
  std::unique_ptr<DenseWeight> kv_a;      // [kv_lora_rank + rope, H]
  Buffer q_a_norm, kv_a_norm;             // f32
  std::unique_ptr<DenseWeight> keys, values;
};

struct AttentionWeights {
  AttentionSpec spec;                     // of the heads on this rank
  bool partial = false;                   // the output is this rank's part of a sum over the attention group
  Buffer norm;                            // [H] f32
  std::unique_ptr<DenseWeight> q, k, v;   // [heads * head_dim, H], ...
  LatentWeights latent;                   // instead of q, k, v
  std::unique_ptr<DenseWeight> o;         // [H, heads * head_dim]
  Buffer q_bias, k_bias, v_bias, o_bias;  // f32, or empty
  Buffer q_norm, k_norm;                  // [head_dim] f32, or empty
  Buffer sinks;                           // [heads] f32, or empty
  const RopeTable* rope = nullptr;        // owned by Decoder::Parts
  std::size_t kv_group = 0;
  std::int32_t kv_layer = 0;  // within the group
};

struct DenseFfnWeights {
  DenseFfnSpec spec;                            // of this rank's part
  bool partial = false;                         // as of attention
  std::unique_ptr<DenseWeight> gate, up, down;  // [I, H], [I, H], [H, I]
};

struct BlockWeights {
  AttentionWeights attention;
  Buffer ffn_norm;                // [H] f32
  std::unique_ptr<MoeLayer> moe;  // or dense
  DenseFfnWeights dense;
  std::int64_t expert_bytes = 0;               // of one expert of `moe`
  std::shared_ptr<const Placement> placement;  // of its experts, where rows are counted
  bool quantized_rows = false;                 // rows travel in the GEMM1 input format
};

struct Decoder::Parts {
  ModelConfig config;
  DecoderOptions options;
  std::unique_ptr<DenseWeight> embedding;  // [V, H], or this rank's columns of it
  Buffer final_norm;                       // [H] f32
  std::unique_ptr<DenseWeight> output;     // [V, H], or this rank's rows of it
  // How their outputs come together over the attention group; nullptr where they are whole.
  std::unique_ptr<RankColumns> embedded, logits;
  std::vector<BlockWeights> blocks;
  std::vector<std::pair<RopeSpec, std::unique_ptr<RopeTable>>> ropes;
  std::vector<KvSpec> kv_specs;
  WeightBytes bytes;
  std::vector<SlotLoad> loads;  // [layers] counted into by dispatchers: the part that is not constant
};

}  // namespace sluice::model
