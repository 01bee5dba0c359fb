// The one decoder loop for all families: embedding, blocks of attention and FFN, final norm, logits.
//
// Made once by load_decoder, then constant: `forward` changes nothing but the KV cache, the memory that it is given
// and, over ranks, the counts of slot_load; it allocates nothing and does not synchronise. Called by Engine::step, one
// thread at a time. Tensor data is touched by the Backend only. The residual stream is f32; GEMM operands have the
// compute type.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/scheme.h"
#include "core/log.h"
#include "core/trace.h"
#include "dispatch/moe_layer.h"
#include "model/config.h"
#include "moe/backend.h"
#include "moe/parallel.h"
#include "moe/placement.h"
#include "moe/selection.h"

namespace sluice {
class Group;
}

namespace sluice::model {

struct DecoderOptions {
  Backend* backend = nullptr;          // not owned; outlives the decoder
  DType compute = DType::bf16;         // bf16 or f32
  std::vector<const Runner*> runners;  // [layers] not owned; nullptr for dense layers
  std::vector<Problem> problems;       // [layers] what each runner was asked (problem_of_rank); default for dense
  std::int64_t max_positions = 0;      // rope table length: the context length in use
  std::int32_t block_tokens = 16;      // tokens of a KV block

  // Of a model spread over ranks; one rank that holds everything needs none of it. Groups are not owned and outlive the
  // decoder: `world` of all ranks, `attention` of those that see the same tokens as this one (nullptr = all do).
  RankPlan plan;
  Group* world = nullptr;
  Group* attention = nullptr;
  std::vector<std::shared_ptr<const Placement>> placements;  // [layers] of experts; empty = contiguous
  bool quantized_rows = false;  // DispatcherOptions::quantized_rows, in layers whose recipe and runner allow it

  Trace* trace = nullptr;  // not owned, outlives the decoder: spans of loading and of every step; nullptr = none
};

// The KV caches of all groups of layers; blocks have the same numbers in each.
struct KvState {
  std::vector<std::unique_ptr<KvCache>> groups;
};

// Where forward writes the experts it chose, for load statistics. Host memory, complete after Backend::synchronize.
struct RouteLog {
  std::int32_t* ids = nullptr;  // [moe layers, T, k_max]; layer m starts at m * layer_stride
  std::int64_t layer_stride = 0;
};

struct ForwardArgs {
  BatchView batch;
  KvState* kv = nullptr;
  const std::int32_t* logit_rows = nullptr;  // [n] rows of the batch whose logits are wanted, device memory
  // [n, V] f32 out; absent = none wanted. Of the ranks of an attention group all give the same n, those without memory
  // get none.
  TensorView logits;
  RouteLog* routes = nullptr;   // nullptr = not wanted
  StageSink* stages = nullptr;  // debugging: intermediates of the MoE layers
};

// Sizes of what is resident, for the start line and for GB/s.
struct WeightBytes {
  std::int64_t per_token = 0;  // read once a step whatever it holds: attention, norms, routers, dense FFN, output
  std::int64_t embedding = 0;  // gathered by row, not read as a whole
  std::int64_t experts = 0;    // all experts of all layers
  std::int64_t total() const { return per_token + embedding + experts; }
};

class Decoder {
 public:
  struct Parts;  // decoder_parts.h; filled by load_decoder
  explicit Decoder(std::unique_ptr<Parts> parts);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const;
  Backend& backend() const;
  DType compute() const;
  std::int64_t max_positions() const;
  WeightBytes weight_bytes() const;
  const MoeLayer* moe_layer(std::int64_t layer) const;  // nullptr for dense layers
  std::int64_t expert_bytes(std::int64_t layer) const;  // of one expert, resident; 0 for dense layers
  // Of a CPU rank among several: which slots it has, and the rows that they have computed. nullptr otherwise.
  const Placement* placement(std::int64_t layer) const;
  const SlotLoad* slot_load(std::int64_t layer) const;
  const RankPlan& plan() const;
  Trace* trace() const;
  bool quantized_rows(std::int64_t layer) const;  // whether rows travel quantised

  // One spec a group of layers that store KV alike.
  const std::vector<KvSpec>& kv_specs() const;
  std::int64_t kv_bytes_per_token() const;
  KvState make_kv(std::int64_t blocks) const;

  // Upper bound of what forward takes from the workspace with up to these sizes.
  std::size_t workspace_bytes(std::int64_t tokens, std::int64_t context) const;

  void forward(const ForwardArgs& args, Workspace& workspace, Stream stream) const;

 private:
  std::unique_ptr<Parts> parts_;
};

// Reads every layer once, in order, and gives its pages back as soon as it is prepared. Progress counts bytes of the
// files.
std::unique_ptr<Decoder> load_decoder(const ModelConfig& config, ckpt::WeightSource& source,
                                      const DecoderOptions& options, const ProgressSink& progress);

// One MoE block alone, as the decoder would build it.
std::unique_ptr<MoeLayer> load_moe_layer(const ModelConfig& config, ckpt::WeightSource& source,
                                         const DecoderOptions& options, std::int64_t layer);

}  // namespace sluice::model
