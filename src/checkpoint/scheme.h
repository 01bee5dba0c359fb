// A scheme reads one dialect of checkpoints (plain, and quantised ones beside it) and yields canonical weights.
//
// Vendor names, packing, reciprocal conventions and interleavings end here: above a WeightSource there are roles, sizes
// and views (moe/weights.h). app/wiring.cc holds the one list of schemes; the contents of the shards, not what
// config.json says of them, decide which one reads a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/findings.h"
#include "checkpoint/name_map.h"
#include "checkpoint/scale_policy.h"
#include "core/thread_pool.h"
#include "moe/ids.h"
#include "moe/parallel.h"
#include "moe/recipe.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice::ckpt {

// Layer argument for tensors outside all layers.
inline constexpr std::int64_t kOutsideLayers = -1;

// The part of a layer's experts that a rank holds. The default is everything.
struct ExpertSlice {
  // Of each slot of the rank, in order: the expert whose weights it gets. Empty = all experts, in their order.
  std::vector<LogicalId> experts;
  // Of each expert's intermediate dimension, between groups of scales (moe/weight_slices.h): rows of gate and up with
  // their biases, columns of down. Down's bias goes to the part that begins at 0, and is zero elsewhere. Empty = all.
  Share inner;

  bool whole() const { return experts.empty() && inner.count() == 0; }
  Share inner_of(std::int64_t intermediate) const { return inner.count() == 0 ? Share{0, intermediate} : inner; }
};

// How many weights of one role are stored in one format.
struct FormatUse {
  std::string role;    // "experts", or as in roles.h
  std::string format;  // "bf16", "nvfp4", "fp8-block", ...
  std::int64_t weights = 0;
  std::uint64_t bytes = 0;  // in the files, with scales
  std::int64_t first_layer = 0, last_layer = 0;
};

// Called at load time, by one thread, layer by layer in ascending order (which is what reading ahead counts on). Views
// point into the mapped files, without a copy, and stay valid while the source lives; those of ExpertWeights as long as
// its keep_alive. Throws Error(bad_input) naming file, tensor, found and expected.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Whether the checkpoint has the tensor of a role: for what is optional, like an output projection that may be tied.
  virtual bool has(std::string_view role, std::int64_t layer) const = 0;
  // The tensor of a role, checked to be [rows, cols]; a vector of `cols` elements when rows is 1.
  virtual QuantTensor tensor(std::string_view role, std::int64_t layer, std::int64_t rows, std::int64_t cols) = 0;
  // The routed experts of a layer, checked against `spec`, which is that of the whole model. Of experts that are not in
  // the slice, headers are checked and static input scales are read, nothing else.
  virtual ExpertWeights experts(std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice) = 0;
  ExpertWeights experts(std::int64_t layer, const LayerSpec& spec) { return experts(layer, spec, {}); }
  // As experts(), but leaves it to ExpertWeights::release to look through the block scales of a matrix whose codes are
  // released, since they are in a cache then, and to finish_checks() to look through all others. That must be called
  // before results of the weights are used and while `slice` is there, also after an error of who packs them: the error
  // of a wrong scale comes first.
  virtual ExpertWeights experts_to_check(std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice) {
    return experts(layer, spec, slice);
  }
  virtual void finish_checks() {}
  // The recipe that the stored format of the layer's experts asks for. Reads no weights.
  virtual Recipe expert_recipe(std::int64_t layer) const = 0;
  // The recipe that the stored format of a dense projection asks for. Reads no weights.
  virtual Recipe tensor_recipe(std::string_view /*role*/, std::int64_t /*layer*/) const { return Recipe::bf16; }

  // The part of `layer`'s experts that will be asked for; before anything of the layers is. Nothing else of them is
  // read ahead or counted by bytes().
  virtual void expect_experts(std::int64_t /*layer*/, const ExpertSlice& /*slice*/) {}
  // Gives back the memory of the pages behind a layer's tensors. Views stay valid; touching one reads the file again.
  virtual void release(std::int64_t layer) = 0;
  // Bytes of a layer's tensors in the files; of experts, those that are expected.
  virtual std::uint64_t bytes(std::int64_t layer) const = 0;
  // Tensors that nobody asked for and that the name map does not list as ignored: after loading, a sign of a wrong map.
  virtual std::vector<std::string> unused() const = 0;
  // Oddities of what was read so far, one sentence each, for the start-up log.
  virtual std::vector<std::string> notes() const = 0;
  // The formats of what was asked for so far.
  virtual std::vector<FormatUse> formats() const { return {}; }
  // What notes() says, as data, and what is worth a line in a report only.
  virtual std::vector<Finding> oddities() const { return {}; }
};

struct SchemeOptions {
  ScalePolicy scales;
  // Off for reports, which read neither weights nor (by default) block scales.
  bool read_ahead = true;
  bool block_scales = true;
  // Checks block scales in parallel, all of a layer at once. nullptr = one by one as they are read.
  ThreadPool* pool = nullptr;
  // When set, faults of a weight are added here, and the caller gets a view without data instead of an exception.
  FindingList* findings = nullptr;
};

struct Scheme {
  std::string_view name;
  // Why it cannot read this checkpoint; empty when it can. Looks at headers only.
  std::string (*refusal)(const Checkpoint&);
  // The Checkpoint must outlive the source.
  std::unique_ptr<WeightSource> (*make)(const Checkpoint&, NameMap, const SchemeOptions&);

  std::unique_ptr<WeightSource> open(const Checkpoint& checkpoint, NameMap names,
                                     const SchemeOptions& options = {}) const {
    return make(checkpoint, std::move(names), options);
  }
};

// The first scheme that can read the checkpoint. Throws Error(unsupported) with the reason of each when none can.
const Scheme& find_scheme(const std::vector<Scheme>& schemes, const Checkpoint& checkpoint);

}  // namespace sluice::ckpt
