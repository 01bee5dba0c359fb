// Measures what the GEMMs of the experts, and on demand all dense projections, read while the model reads texts: the
// amax behind static input scales.
//
// Called by app/quantize.h at conversion time. Runs the loaded model's own decoder and takes its intermediates
// (moe/stages.h). Slow (every intermediate is dumped),
// one thread calls it.
#pragma once

#include <string>
#include <vector>

#include "app/recording_backend.h"
#include "app/wiring.h"
#include "checkpoint/export.h"
#include "core/log.h"

namespace sluice::app {

// Texts of a calibration file: "text", or "question" and "answer", of each line of JSON; without JSON, the paragraphs
// (separated by blank lines) of plain text. Throws Error(bad_input) when there are none.
std::vector<std::string> read_calibration_texts(const std::string& path);

struct CalibrationReport {
  ckpt::Calibration calibration;
  std::int64_t tokens = 0;
  std::int64_t unseen_experts = 0;  // got no token: they have the largest amax of their layer
};

// `names` are those of the model's family. `recorded`, the model's own backend, adds the projections outside the routed
// experts; nullptr when they are not wanted.
CalibrationReport calibrate(LoadedModel& model, const ckpt::NameMap& names, const std::vector<std::string>& texts,
                            const RecordingBackend* recorded, const ProgressSink& progress);

}  // namespace sluice::app
