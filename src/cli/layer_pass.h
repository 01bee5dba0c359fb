// One MoE block on one rank: what `sluice layer` does on each.
//
// Called by layer.cc, with Options::world set on a rank of several; then by all ranks, since loading and the layer
// itself meet the others. The result owns its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/log.h"

namespace sluice::ckpt {
class SafetensorsWriter;
}

namespace sluice::cli {

// Every intermediate of --dump-stages.
class LayerStages {
 public:
  virtual ~LayerStages() = default;
  virtual void add_to(ckpt::SafetensorsWriter& writer) const = 0;  // by reference: this object outlives write()
};

struct LayerResult {
  std::int64_t tokens = 0;   // of this rank's dp group
  std::int64_t columns = 0;  // H
  std::int64_t top_k = 0;
  std::vector<float> output;      // [T, H]
  std::vector<std::int32_t> ids;  // [T, k]
  std::vector<float> weights;     // [T, k]
  std::string recipe, runner;
  std::shared_ptr<const LayerStages> stages;
};

LayerResult run_layer(const Options& options, const LogSink& log);

void write_layer(const LayerResult& result, const std::string& path);

}  // namespace sluice::cli
