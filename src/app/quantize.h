// Opens a model for conversion, measures input scales where they are wanted, and exports it: `sluice quantize` without
// its flags. Called by cli/quantize.cc and tests. Throws Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/wiring.h"
#include "checkpoint/export.h"

namespace sluice::app {

struct QuantizeOptions {
  std::string source;
  std::string out;
  std::string format;     // bf16, fp8, fp8-block, nvfp4, mxfp4
  std::string dialect;    // "" = the usual one
  std::string mx_scale;   // ceil or ocp
  std::string calibrate;  // file of texts, "" = none
  std::vector<std::string> include;
  std::uint64_t max_shard_bytes = 5'000'000'000;
  LoadOptions load;  // for calibration; its threads also do the conversion
};

struct QuantizeResult {
  ckpt::ExportTarget target;
  ckpt::ExportReport report;
  std::int64_t calibration_tokens = 0;
  std::int64_t unseen_experts = 0;
  double seconds = 0;  // of the export
};

QuantizeResult quantize(const QuantizeOptions& options, const ProgressSink& progress, const LogSink& log);

}  // namespace sluice::app
