// Everything that touches tensor data (architecture 4.1). model/ and engine/ call it and never dereference a tensor.
//
// Operations take a stream; they neither allocate nor synchronise, and scratch comes from the workspace they are given.
// prepare_* and make_* allocate and belong to load time. One backend object serves one thread at a time.
//
// Number formats: the residual stream, norms, rope, softmax, router and logits are f32. GEMM operands and KV have the
// compute type: bf16, or f32 for --dtype float32. Row-invariance (architecture 4.5): with bf16 and f32 on the CPU the
// bits of an output row never depend on the other rows, on T or on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"
#include "core/workspace.h"
#include "moe/recipe.h"
#include "moe/routing.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice {

// A dense projection or an embedding table in the backend's own layout.
class DenseWeight {
 public:
  virtual ~DenseWeight() = default;
  std::int64_t rows = 0;  // outputs
  std::int64_t cols = 0;  // inputs
  std::int64_t resident_bytes = 0;
};

class RopeTable {
 public:
  virtual ~RopeTable() = default;
};

class KvCache {
 public:
  virtual ~KvCache() = default;
};

// One group of layers that store KV in the same way.
struct KvSpec {
  enum class Kind : std::uint8_t {
    gqa,
    sliding,
    mla_latent,  // one row a token for all heads: it is the key, and its first value_dim columns are the value
  };
  Kind kind = Kind::gqa;
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;   // 1 for mla_latent
  std::int32_t head_dim = 0;   // of keys
  std::int32_t value_dim = 0;  // of values; 0 = head_dim
  DType dtype = DType::bf16;
  std::int32_t block_tokens = 16;
  std::int32_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  std::int64_t bytes_per_token() const {  // keys and values of all layers
    const std::int64_t columns = kind == Kind::mla_latent ? head_dim : head_dim + values();
    return static_cast<std::int64_t>(layers) * kv_heads * columns * dtype_bits(dtype) / 8;
  }
};

// One step's tokens, in device memory. Tokens of a sequence are consecutive and in order.
struct BatchView {
  std::int64_t tokens = 0;                    // T
  std::int64_t sequences = 0;                 // S
  const std::int32_t* token_ids = nullptr;    // [T]
  const std::int32_t* positions = nullptr;    // [T] absolute
  const std::int32_t* query_start = nullptr;  // [S + 1] first token of each sequence in this step
  const std::int32_t* block_table = nullptr;  // [S, max_blocks] KV blocks, by absolute position / block_tokens
  std::int64_t max_blocks = 0;
  std::int64_t max_context = 0;  // longest context after this step, a bound for scratch
};

struct NormArgs {
  ConstTensorView x;              // [rows, cols] f32
  const float* weight = nullptr;  // [cols]
  float epsilon = 1e-6f;
  TensorView out_f32;      // [rows, cols] f32, may be x itself; absent = not wanted
  TensorView out_compute;  // [rows, cols] compute type; absent = not wanted
};

struct LinearArgs {
  ConstTensorView x;  // [T, K] bf16, or f32 for the f32 recipe
  const DenseWeight* weight = nullptr;
  const float* bias = nullptr;  // [N]
  TensorView y;                 // [T, N] f32 or compute type
  bool accumulate = false;      // y += x W^T + bias, in fp32 with one rounding; y f32
};

// y[t, h] = W_h x[t, h] for every head h, each with a weight of its own [N, K], summed as linear() does.
struct HeadLinearArgs {
  ConstTensorView x;  // [T, heads * (K + tail)] f32 or compute type; rounded once to the compute type
  const DenseWeight* weight = nullptr;
  TensorView y;           // [T, heads * (N + tail)] f32 or compute type
  std::int64_t tail = 0;  // columns behind the K of each head that are copied behind its N; x and y f32 then
};

struct RopeArgs {
  TensorView x;  // [T, heads * head_dim] f32, in place
  std::int32_t heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t first = 0;  // first rotated column of a head
  const RopeTable* table = nullptr;
  bool interleaved = false;                 // pairs (2i, 2i+1) instead of (i, i + d/2)
  const std::int32_t* positions = nullptr;  // [T]
};

struct KvStoreArgs {
  ConstTensorView k, v;  // [T, kv_heads * head_dim] f32, rounded once to the type of the cache; no v for mla_latent
  KvCache* cache = nullptr;
  std::int32_t layer = 0;  // within the cache's group
  const BatchView* batch = nullptr;
};

struct AttentionArgs {
  ConstTensorView q;  // [T, heads * head_dim] f32; rounded once to the type of the cache
  const KvCache* cache = nullptr;
  std::int32_t layer = 0;
  std::int32_t heads = 0;
  float scale = 1.0f;            // of q k before softmax
  std::int32_t window = 0;       // keys seen, counting the query's own; 0 = all
  const float* sinks = nullptr;  // [heads] extra logits in the softmax denominator
  const BatchView* batch = nullptr;
  TensorView out;  // [T, heads * values()] compute type
};

// A change of one logit x before a token is chosen: (x > 0 ? x / divisor : x * divisor) + add.
struct LogitEdit {
  std::int32_t token = 0;
  float divisor = 1.0f;  // above 0
  float add = 0.0f;      // -infinity = never chosen
};

struct SampleParams {
  float temperature = 0.0f;  // 0 = greedy; ties to the lowest id
  std::int32_t top_k = 0;    // 0 = all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;            // number of the generated token: (seed, step) fixes the random number
  const LogitEdit* edits = nullptr;  // [edit_count] host memory, each token once; log-probabilities do not see them
  std::int64_t edit_count = 0;
  std::int32_t given = -1;  // >= 0: this token is taken and nothing chosen, for log-probabilities of known tokens
  std::int32_t top = 0;     // most probable tokens wanted, at most SampleArgs::top_width
};

struct SampleArgs {
  ConstTensorView logits;                // [n, V] f32
  const SampleParams* params = nullptr;  // [n], host memory
  std::int32_t* tokens = nullptr;        // [n] out; -1 where the row has a NaN or no finite logit
  float* logprobs = nullptr;             // [n] out, log-softmax of the chosen token at temperature 1; may be nullptr
  // [n, top_width] out: the row's `top` most probable tokens, ties to the lowest id, then -1. Needs logprobs.
  std::int64_t top_width = 0;
  std::int32_t* top_tokens = nullptr;
  float* top_logprobs = nullptr;
};

// out[t] = sum over s of weights[t, s] * rows[row_of[t, s]], in fp32 from 0 in slot order, rounded once to out's type:
// the bits of a runner's own sum.
struct SlotSumArgs {
  ConstTensorView rows;                  // [n, W] slot rows, bf16 or f32
  const std::int32_t* row_of = nullptr;  // [T, k]; below 0 = the slot is skipped
  const float* weights = nullptr;        // [T, k]; nullptr = rows are weighted already
  std::int32_t top_k = 0;                // k
  TensorView out;                        // [T, W] f32 or bf16
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual std::string describe() const = 0;  // for the start line: device, instruction set, threads

  // Memory. Copies are ordered on the stream; `synchronize` waits for it.
  virtual Buffer alloc(std::size_t bytes) = 0;
  virtual void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_host(void* dst, const void* src, std::size_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;

  // Load time.
  // Dense projections use the recipes of the experts, as far as they speak of one product: f32 has f32 inputs, all
  // others bf16, which a recipe with quantised inputs quantises inside linear().
  virtual std::unique_ptr<DenseWeight> prepare_dense(const QuantTensor& weight, Recipe recipe) = 0;
  // One weight a head, all of the same size and of any format; for head_linear.
  virtual std::unique_ptr<DenseWeight> prepare_heads(const std::vector<QuantTensor>& heads, DType compute) = 0;
  virtual std::unique_ptr<DenseWeight> prepare_embedding(const QuantTensor& table) = 0;
  virtual Buffer prepare_vector(const QuantTensor& row) = 0;  // norm weights and biases, [1, n] of any type > f32
  // Angles are position * inv_freq[i]; cosines and sines are multiplied by `factor` (YaRN's mscale).
  virtual std::unique_ptr<RopeTable> make_rope(const std::vector<float>& inv_freq, float factor,
                                               std::int64_t max_positions) = 0;
  virtual std::unique_ptr<KvCache> make_kv(const KvSpec& spec, std::int64_t blocks) = 0;

  // Scratch that the operations below need with up to `tokens` rows and contexts of up to `context` tokens.
  virtual std::size_t workspace_bytes(std::int64_t tokens, std::int64_t context, std::int64_t widest) const = 0;

  virtual void embed(const DenseWeight& table, const std::int32_t* token_ids, const TensorView& out_f32, Stream s) = 0;
  virtual void rms_norm(const NormArgs& args, Stream s) = 0;
  virtual void linear(const LinearArgs& args, Workspace& workspace, Stream s) = 0;
  virtual void head_linear(const HeadLinearArgs& args, Workspace& workspace, Stream s) = 0;
  virtual void rope(const RopeArgs& args, Stream s) = 0;
  virtual void kv_store(const KvStoreArgs& args, Stream s) = 0;
  virtual void attention(const AttentionArgs& args, Workspace& workspace, Stream s) = 0;
  virtual void activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                        const TensorView& out, Stream s) = 0;  // [T, I] f32 > compute type
  virtual void route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream s) = 0;
  virtual void add(const TensorView& into, const ConstTensorView& x, Stream s) = 0;  // f32
  // into[t] += sigmoid(gate[t]) * x[t], f32; gate [T, 1].
  virtual void add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, Stream s) = 0;
  virtual void gather_rows(const ConstTensorView& x, const std::int32_t* rows, const TensorView& out, Stream s) = 0;
  virtual void sum_slot_rows(const SlotSumArgs& args, Stream s) = 0;
  virtual void sample(const SampleArgs& args, Workspace& workspace, Stream s) = 0;
};

}  // namespace sluice
