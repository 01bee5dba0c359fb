// Shared experts as further routed experts that every token chooses with weight exactly 1 (architecture 4.3): one
// launch of the runner less a layer, at the price of rounding the shared expert's output like any slot row.
//
// Called at load time, before runners are chosen (fuse_shared_experts) and when weights are read
// (append_shared_experts). Free functions; errors name the layer.
#pragma once

#include <cstdint>

#include "checkpoint/scheme.h"
#include "model/config.h"

namespace sluice::model {

// Turns the shared expert of every block into routing.fused_shared experts with ids from E_routed on. Throws
// Error(unsupported) when one cannot be: its intermediate size is no multiple of the routed experts', its activation or
// clamp differs, it has an output gate, or routed experts have biases.
void fuse_shared_experts(ModelConfig& config);

// The routed experts of a layer, and behind them its spec.routing.fused_shared shared ones as views; of both, what the
// slice holds, where id E_routed + i stands for shared expert i. `spec` is that of the whole model. Throws
// Error(unsupported) when their formats or recipes differ. Block scales may be left to source.finish_checks().
ExpertWeights read_experts(ckpt::WeightSource& source, std::int64_t layer, const LayerSpec& spec,
                           const ckpt::ExpertSlice& slice);

}  // namespace sluice::model
