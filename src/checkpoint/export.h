// Writes a checkpoint in another number format or dialect: what `sluice quantize` does.
//
// Called by app/quantize.h with an opened checkpoint. Reads through the WeightSource, so every dialect that loads can
// be converted; what is not quantised is copied byte for byte. Shard by shard, each appearing complete or not at all:
// memory is bounded by a band of rows a thread (a stacked, transposed file: an expert a thread), whatever the model's
// size, and a run that was interrupted goes on after its last complete shard when it is started again. config.json is
// written last, so an unfinished folder cannot be taken for a model. Blocks until done; one thread, which lends the
// pool. Throws Error; OUT then holds complete shards and no config.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/export_format.h"
#include "checkpoint/scheme.h"
#include "core/log.h"
#include "core/thread_pool.h"

namespace sluice::ckpt {

// Largest magnitudes of the inputs, measured by running text through the model.
struct Calibration {
  struct Experts {
    std::vector<float> gemm1;  // [E] of what gate and up read
    std::vector<float> gemm2;  // [E] of what down reads
  };
  std::map<std::int64_t, Experts> layers;
  std::map<std::string, float> modules;  // other projections, by module name
};

struct ExportSource {
  const Checkpoint* checkpoint = nullptr;
  const NameMap* names = nullptr;
  WeightSource* weights = nullptr;
  std::vector<const LayerSpec*> layers;  // [layers] nullptr for dense ones
};

struct ExportOptions {
  ExportTarget target;
  std::vector<std::string> include;  // globs of modules to quantise beside the experts
  std::uint64_t max_shard_bytes = 5'000'000'000;
  const Calibration* calibration = nullptr;  // needed when target.static_inputs and the source has no such scales
  std::string producer_version;
  ThreadPool* pool = nullptr;
  ProgressSink progress;
};

struct ExportReport {
  std::uint64_t source_bytes = 0;
  std::uint64_t written_bytes = 0;  // of tensors, those of resumed shards included
  std::int64_t quantised = 0;       // projections
  std::int64_t shards = 0;
  std::int64_t resumed_shards = 0;    // were complete already
  std::vector<std::string> excluded;  // modules of linear layers that keep their format
  std::vector<std::string> notes;
};

ExportReport export_checkpoint(const ExportSource& source, const std::string& out, const ExportOptions& options);

// Whether the source's own static input scales can be taken over: it has some, and its experts have the target's
// format.
bool has_input_scales(const ExportSource& source, const ExportTarget& target);

}  // namespace sluice::ckpt
