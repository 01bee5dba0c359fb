#include "app/quantize.h"

#include <chrono>
#include <optional>

#include "app/calibrate.h"
#include "app/version.h"

namespace sluice::app {
namespace {

// The model as the exporter sees it: names, sizes and weights, without backend or runners.
struct Source {
  ModelFiles files;
  std::unique_ptr<ckpt::WeightSource> weights;
  ckpt::ExportSource view;
};

std::unique_ptr<Source> open_source(const QuantizeOptions& options, const LogSink& log) {
  auto source = std::make_unique<Source>();
  source->files = open_model_files(options.source);
  const ModelFiles& files = source->files;
  for (const std::string& note : files.checkpoint->notes()) {
    if (log) log(LogLevel::warning, note);
  }
  const std::vector<ckpt::Scheme> dialects = schemes();
  ckpt::SchemeOptions how;
  how.scales = ckpt::ScalePolicy::parse(options.load.scale_policy);
  source->weights = ckpt::find_scheme(dialects, *files.checkpoint).open(*files.checkpoint, files.names, how);
  source->view = {files.checkpoint.get(), &files.names, source->weights.get(), {}};
  for (const model::BlockSpec& block : files.config.layers) source->view.layers.push_back(block.moe());
  return source;
}

// Static input scales come from calibration, or are taken over from a source of the same format.
ckpt::ExportTarget target_of(const QuantizeOptions& options, const Source& source) {
  ckpt::ExportRequest request{options.format, options.dialect, options.mx_scale, !options.calibrate.empty()};
  const auto resolve = [&] { return ckpt::resolve_target(request, source.files.config.family); };
  if (request.calibrated || (options.format != "fp8" && options.format != "nvfp4")) return resolve();
  ckpt::ExportTarget with_inputs;
  with_inputs.format = options.format == "fp8" ? ckpt::ExportFormat::fp8 : ckpt::ExportFormat::nvfp4;
  with_inputs.static_inputs = true;
  request.calibrated = ckpt::has_input_scales(source.view, with_inputs);
  return resolve();
}

// Projections beside the experts are recorded when some are to be quantised. On the CPU, where inputs can be read.
CalibrationReport measure(const QuantizeOptions& options, const ckpt::NameMap& names, const ProgressSink& progress) {
  const std::vector<std::string> texts = read_calibration_texts(options.calibrate);
  LoadOptions load = options.load;
  load.device = "cpu";
  OpenedModel opened = open_model(options.source, load, {});
  RecordingBackend* recording = nullptr;
  if (!options.include.empty()) {
    auto owned = std::make_unique<RecordingBackend>(std::move(opened.backend));
    recording = owned.get();
    opened.backend = std::move(owned);
  }
  LoadedModel model = load_model(std::move(opened), progress, {});
  return calibrate(model, names, texts, recording, progress);
}

}  // namespace

QuantizeResult quantize(const QuantizeOptions& options, const ProgressSink& progress, const LogSink& log) {
  const std::unique_ptr<Source> source = open_source(options, log);
  QuantizeResult result;
  result.target = target_of(options, *source);
  ckpt::ExportOptions export_options;
  std::optional<CalibrationReport> measured;
  if (!options.calibrate.empty()) {
    measured = measure(options, source->files.names, progress);
    result.calibration_tokens = measured->tokens;
    result.unseen_experts = measured->unseen_experts;
    export_options.calibration = &measured->calibration;
  }
  ThreadPool pool(options.load.threads > 0 ? options.load.threads : available_processors());
  export_options.target = result.target;
  export_options.include = options.include;
  export_options.max_shard_bytes = options.max_shard_bytes;
  export_options.producer_version = version_number();
  export_options.pool = &pool;
  export_options.progress = progress;
  const auto start = std::chrono::steady_clock::now();
  result.report = ckpt::export_checkpoint(source->view, options.out, export_options);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace sluice::app
