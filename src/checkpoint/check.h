// What `sluice check` asks of a checkpoint: a report from headers and scales without reading weights, and a scan of one
// tensor for values that no weight should have.
//
// Called by the commands, one thread. check_checkpoint opens nothing but what the Checkpoint has mapped and owns
// nothing afterwards; count_non_finite is pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/findings.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scheme.h"
#include "core/function_ref.h"

namespace sluice::ckpt {

struct NonFiniteCount {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  std::int64_t first = -1;  // index of the first such element in the order of the file, -1 = none

  explicit operator bool() const { return first >= 0; }
  bool operator==(const NonFiniteCount&) const = default;
};

// Zero counts for types that have neither NaN nor infinity (integers, e2m1).
NonFiniteCount count_non_finite(const TensorEntry& tensor);

struct CheckOptions {
  ScalePolicy scales;         // as --scale-policy; what it would repair is reported as a warning
  bool block_scales = false;  // also read every block scale: about a tenth of the bytes of a 4-bit checkpoint
  bool weights = false;       // also look for NaN and infinity in every tensor: reads the whole checkpoint
};

struct CheckReport {
  std::string scheme;       // which one reads it: "plain", "modelopt", ...; empty when none can
  std::string description;  // what the configuration files say of the format, and which of them; empty when nothing
  std::vector<FormatUse> formats;
  std::vector<Finding> findings;  // errors first
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;

  std::int64_t count(Severity severity) const;  // findings, each as often as it was found
  bool ok() const { return count(Severity::error) == 0; }
};

// `ask` asks the source for everything the model needs, as loading does: model::load_decoder over a backend and runners
// that prepare nothing will do. It must not touch weight data. Faults of a weight do not reach it as exceptions: they
// go into the report, and it gets a view of the right shape without data, so that one run finds all of them. Afterwards
// whatever nobody asked for is reported as unused. Time and memory grow with the number of tensors, not with their
// size.
CheckReport check_checkpoint(const Checkpoint& checkpoint, const std::vector<Scheme>& schemes, NameMap names,
                             const CheckOptions& options, FunctionRef<void(WeightSource&)> ask);

}  // namespace sluice::ckpt
