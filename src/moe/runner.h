// A runner: one way to compute the experts of a layer on one device (architecture 4.4).
//
// Life cycle: supports > prepare > run, any number of times, from any thread that has its own workspace. A runner
// object is immutable; what belongs to a layer is in PreparedExperts, which only the runner that made it can read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/device.h"
#include "core/tensor.h"
#include "core/workspace.h"
#include "moe/ids.h"
#include "moe/recipe.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice {

enum class DispatchKind : std::uint8_t { local, allreduce, allgather, alltoall };

struct Parallel {
  std::int32_t ep_size = 1;
  std::int32_t ep_rank = 0;
  std::int32_t tp_size = 1;
  std::int32_t tp_rank = 0;
};

// Everything that may decide whether a runner can do a layer, known before any weight is read.
struct Problem {
  LayerSpec layer;
  Recipe recipe = Recipe::bf16;
  Device device;
  DispatchKind dispatch = DispatchKind::local;
  Parallel parallel;
  std::int64_t max_tokens = 0;
  bool graph = false;                // run will be captured
  bool row_invariant = false;        // architecture 4.5
  bool upstream_gate_alpha = false;  // the tensor scale of gate serves up too (recipe.h)
};

struct Verdict {
  bool ok = true;
  std::string reason;  // why not, in words for the user
  static Verdict yes() { return {}; }
  static Verdict no(std::string why) { return {false, std::move(why)}; }
};

class PreparedExperts {
 public:
  virtual ~PreparedExperts() = default;
  virtual std::int64_t resident_bytes() const = 0;
};

// Receives intermediates for `--dump-stages`; called from one thread. Debugging only: implementations may be slow.
class StageSink {
 public:
  virtual ~StageSink() = default;
  // `route` is t * k + s of each row of `rows`, or nullptr when row i is simply row i of the batch.
  virtual void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) = 0;
};

// Hidden rows that a dispatcher has quantised already, in the GEMM1 input format of the recipe (recipe.h). Scales are
// linear, row by row, never swizzled. Not together with weight_on_input.
struct QuantizedRows {
  ConstTensorView codes;         // [T, W] e2m1, two a byte, or e4m3; absent = the input is RunArgs::hidden
  ConstTensorView block_scales;  // nvfp4: [T, ceil(W / 16)] e4m3; mxfp8: [T, ceil(W / 32)] e8m0
  ConstTensorView sum_scales;    // fp8: f32 decode multipliers [1, 1], [T, 1] or [T, ceil(W / 128)]
  float encode_scale = 0.0f;     // nvfp4: what the rows were quantised with; alphas follow it, not the file's scale
};

struct RunArgs {
  ConstTensorView hidden;                      // [T, H] bf16 (f32 for the f32 recipe)
  QuantizedRows quantized;                     // or this in place of `hidden`; not every runner takes it
  const SlotId* ids = nullptr;                 // [T, k]; ids outside `slots` are skipped; duplicates are allowed
  const float* weights = nullptr;              // [T, k]
  std::int32_t top_k = 0;                      // k
  const std::int32_t* valid_tokens = nullptr;  // device scalar: rows from there on give zeros; nullptr = T
  SlotRange slots;                             // whose weights `prepared` holds
  TensorView sum;     // out: [T, H] bf16 or f32, the weighted sum over slots; zeros where nothing contributes
  TensorView routes;  // or out: [T * k, H] slot rows, unweighted; rows of skipped ids are zeros
  Workspace* workspace = nullptr;
  Stream stream;
  StageSink* stages = nullptr;

  std::int64_t tokens() const { return quantized.codes ? quantized.codes.rows : hidden.rows; }  // T
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::string_view name() const = 0;

  virtual Verdict supports(const Problem& problem) const = 0;
  // Whether `run` takes RunArgs::quantized: codes made with the static scale of the layer give the bits that plain rows
  // give. `problem` is one that it supports.
  virtual bool takes_quantized_rows(const Problem& /*problem*/) const { return false; }

  // Reorders and packs the weights. Reads each expert once; peak memory = result + one expert.
  virtual std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const = 0;
  // New weights into the same memory at the same addresses.
  virtual void reload(PreparedExperts& prepared, ExpertWeights&& weights) const = 0;

  // Upper bound for `run` with up to `tokens` tokens.
  virtual std::size_t workspace_bytes(const Problem& problem, std::int64_t tokens) const = 0;

  // Allocates, synchronises and builds nothing; T = 0 is fine. Exactly one of args.sum and args.routes is set.
  virtual void run(const PreparedExperts& prepared, const RunArgs& args) const = 0;
};

}  // namespace sluice
