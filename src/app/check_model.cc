#include "app/check_model.h"

#include <fmt/core.h>

#include "app/ask_weights.h"
#include "app/wiring.h"

namespace sluice::app {
namespace {

// Tensors that the model leaves out on purpose, so that every tensor is accounted for.
ckpt::Finding skipped_finding(const ckpt::Checkpoint& checkpoint, const model::SkippedTensors& skipped) {
  ckpt::Finding finding;
  finding.kind = ckpt::FindingKind::unused;
  finding.count = 0;
  for (const ckpt::TensorEntry* tensor : checkpoint.tensors()) {
    if (!ckpt::matches(skipped.pattern, tensor->name)) continue;
    if (finding.count++ == 0) finding.tensor = tensor->name;
  }
  finding.message = fmt::format("{}: tensors of {} are skipped", skipped.pattern, skipped.what);
  return finding;
}

}  // namespace

ModelCheck check_model(const CheckModelOptions& options) {
  ckpt::CheckOptions how;
  how.scales = ckpt::ScalePolicy::parse(options.scale_policy);
  how.block_scales = options.block_scales || options.weights;  // by the rules of loading, not for NaN alone
  how.weights = options.weights;
  const ModelFiles files = open_model_files(options.path);
  const model::ModelConfig& config = files.config;
  ModelCheck out;
  out.architecture = config.architecture;
  out.report = ckpt::check_checkpoint(*files.checkpoint, schemes(), files.names, how,
                                      [&](ckpt::WeightSource& source) { ask_for_weights(config, source); });
  for (const model::SkippedTensors& skipped : config.skipped) {
    ckpt::Finding finding = skipped_finding(*files.checkpoint, skipped);
    if (finding.count > 0) out.report.findings.push_back(std::move(finding));
  }
  out.memory = plan_memory(config, out.report.formats);
  return out;
}

}  // namespace sluice::app
