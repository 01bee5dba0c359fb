// sluice layer: one MoE block alone, on given hidden states and optionally given routes.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "core/error.h"
#include "moe/stages.h"
#include "numerics/bf16.h"

namespace sluice::cli {
namespace {

struct LayerInput {
  std::int64_t tokens = 0;
  std::vector<float> hidden;      // [T, H]
  std::vector<std::int32_t> ids;  // [T, k] or empty
  std::vector<float> weights;     // [T, k] or empty
};

[[noreturn]] void wrong_tensor(const std::string& path, const ckpt::TensorEntry& e, const std::string& expected) {
  fail(ErrorCode::bad_input,
       fmt::format("{}: {} is {} {}", path, e.name, dtype_name(e.dtype), ckpt::shape_text(e.shape)), expected);
}

std::vector<float> read_hidden(const std::string& path, const ckpt::TensorEntry& e, std::int64_t width) {
  const bool known = e.dtype == DType::f32 || e.dtype == DType::bf16;
  if (!known || e.shape.size() != 2 || e.shape[1] != width) {
    wrong_tensor(path, e, fmt::format("f32 or bf16 [T, {}]", width));
  }
  std::vector<float> values(static_cast<std::size_t>(e.shape[0] * e.shape[1]));
  if (e.dtype == DType::f32) {
    std::memcpy(values.data(), e.data, e.bytes);
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Bf16 v;
    std::memcpy(&v, e.data + 2 * i, 2);
    values[i] = to_float(v);
  }
  return values;
}

template <class T>
std::vector<T> read_routes(const std::string& path, const ckpt::TensorEntry& e, DType dtype, std::int64_t tokens,
                           std::int64_t top_k) {
  if (e.dtype != dtype || e.shape != std::vector<std::int64_t>{tokens, top_k}) {
    wrong_tensor(path, e, fmt::format("{} [{}, {}]", dtype_name(dtype), tokens, top_k));
  }
  std::vector<T> values(static_cast<std::size_t>(tokens * top_k));
  std::memcpy(values.data(), e.data, e.bytes);
  return values;
}

LayerInput read_input(const std::string& path, const LayerSpec& spec) {
  const ckpt::SafetensorsFile file(path);
  const ckpt::TensorEntry* hidden = file.find("hidden");
  if (hidden == nullptr) fail(ErrorCode::bad_input, path + ": no tensor `hidden`", "`hidden` [T, H]");
  LayerInput input;
  input.hidden = read_hidden(path, *hidden, spec.hidden);
  input.tokens = hidden->shape[0];
  const ckpt::TensorEntry* ids = file.find("topk_ids");
  const ckpt::TensorEntry* weights = file.find("topk_weights");
  if ((ids == nullptr) != (weights == nullptr)) {
    fail(ErrorCode::bad_input, path + ": only one of `topk_ids` and `topk_weights` is there", "both or neither");
  }
  if (ids != nullptr) {
    input.ids = read_routes<std::int32_t>(path, *ids, DType::i32, input.tokens, spec.routing.slots());
    input.weights = read_routes<float>(path, *weights, DType::f32, input.tokens, spec.routing.slots());
  }
  return input;
}

// Copies every stage, so that it can be written once the layer is done. Rows come as the runner has them, with the
// route (t * k + s) of each beside them. Those of the layer itself are in the memory of the backend, those of a runner
// in host memory.
class StageCopies : public StageSink {
 public:
  explicit StageCopies(Backend& backend) : backend_(backend) {}

  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    Copy& copy = copies_.emplace_back();
    copy.name = fmt::format("stage.{}", stage);
    const auto repeats = std::count_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return c.stage == stage; });
    if (repeats > 0) copy.name += fmt::format(".{}", repeats);
    copy.stage = stage;
    copy.dtype = rows.dtype;
    copy.shape = {rows.rows, rows.cols};
    const std::int64_t row_bytes = dtype_bytes(rows.dtype, rows.cols);
    copy.data.resize(static_cast<std::size_t>(rows.rows * row_bytes));
    std::vector<std::byte> downloaded;
    const auto* from = static_cast<const std::byte*>(rows.data);
    if (stage == stage::kRouterLogits || stage == stage::kSharedIntermediate) {
      downloaded.resize(static_cast<std::size_t>(dtype_bytes(rows.dtype, rows.rows * rows.row_stride)));
      backend_.copy_to_host(downloaded.data(), rows.data, downloaded.size(), Stream{});
      backend_.synchronize(Stream{});
      from = downloaded.data();
    }
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      std::memcpy(copy.data.data() + r * row_bytes, from + r * dtype_bytes(rows.dtype, rows.row_stride),
                  static_cast<std::size_t>(row_bytes));
    }
    if (route != nullptr) copy.route.assign(route, route + rows.rows);
  }

  void add_to(ckpt::SafetensorsWriter& writer) const {
    for (const Copy& c : copies_) {
      writer.add(c.name, c.dtype, c.shape, std::span<const std::byte>(c.data));
      if (!c.route.empty()) {
        writer.add(c.name + ".route", DType::i64, {static_cast<std::int64_t>(c.route.size())}, c.route);
      }
    }
  }

 private:
  struct Copy {
    std::string name, stage;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
    std::vector<std::int64_t> route;
  };
  Backend& backend_;
  std::deque<Copy> copies_;
};

Buffer upload(Backend& backend, const void* data, std::size_t bytes) {
  Buffer buffer = backend.alloc(std::max<std::size_t>(bytes, 1));
  if (bytes > 0) backend.copy_to_device(buffer.data(), data, bytes, Stream{});
  return buffer;
}

// Device copies of the input, and room for the output.
struct DeviceData {
  Buffer hidden_f32, hidden_compute, ids, weights, output, workspace;
  MoeInput input;
  TensorView out;

  DeviceData(Backend& backend, const LayerInput& in, const LayerSpec& spec, DType compute,
             std::size_t workspace_bytes) {
    const std::size_t count = in.hidden.size();
    hidden_f32 = upload(backend, in.hidden.data(), count * sizeof(float));
    std::vector<Bf16> rounded;
    for (const float v : in.hidden) rounded.push_back(to_bf16(v));
    if (compute == DType::bf16) hidden_compute = upload(backend, rounded.data(), count * sizeof(Bf16));
    input.hidden_f32 = dense_view(static_cast<const void*>(hidden_f32.data()), DType::f32, in.tokens, spec.hidden);
    input.hidden = compute == DType::bf16 ? dense_view(static_cast<const void*>(hidden_compute.data()), DType::bf16,
                                                       in.tokens, spec.hidden)
                                          : input.hidden_f32;
    if (!in.ids.empty()) {
      ids = upload(backend, in.ids.data(), in.ids.size() * sizeof(std::int32_t));
      weights = upload(backend, in.weights.data(), in.weights.size() * sizeof(float));
      input.ids = ids.as<LogicalId>();
      input.weights = weights.as<float>();
    }
    output = backend.alloc(std::max<std::size_t>(count * sizeof(float), 1));
    out = dense_view(output.data(), DType::f32, in.tokens, spec.hidden);
    workspace = backend.alloc(workspace_bytes);
  }
};

void check_options(const Options& o) {
  if (o.ep != 1) fail(ErrorCode::unsupported, fmt::format("--ep {}", o.ep), "1", "expert parallelism is not built yet");
}

app::OpenedModel open_for_layer(const Options& o, Terminal& terminal) {
  if (o.routed_only && o.enforce_shared_experts_fusion) {
    fail(ErrorCode::usage, "--routed-only with --enforce-shared-experts-fusion", "one of the two",
         "fused shared experts are routed ones");
  }
  app::LoadOptions load = load_options(o);
  load.device = o.device;
  return app::open_model(o.model, load, terminal.log());
}

const LayerSpec& layer_spec(const app::OpenedModel& model, std::int64_t layer) {
  const auto layers = static_cast<std::int64_t>(model.config.layers.size());
  if (layer < 0 || layer >= layers) {
    fail(ErrorCode::usage, fmt::format("--layer {}", layer), fmt::format("0 to {}", layers - 1));
  }
  const LayerSpec* spec = model.config.layers[static_cast<std::size_t>(layer)].moe();
  if (spec == nullptr) fail(ErrorCode::usage, fmt::format("layer {} is dense", layer), "a layer with experts");
  return *spec;
}

void write_result(const Options& o, Backend& backend, const DeviceData& data, const MoeRoutes& routes,
                  std::int64_t top_k, const StageCopies& stages) {
  const std::int64_t tokens = data.out.rows;
  std::vector<float> output(static_cast<std::size_t>(tokens * data.out.cols));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * top_k));
  std::vector<float> weights(ids.size());
  if (tokens > 0) {
    backend.copy_to_host(output.data(), data.out.data, output.size() * sizeof(float), Stream{});
    backend.copy_to_host(ids.data(), routes.ids, ids.size() * sizeof(std::int32_t), Stream{});
    backend.copy_to_host(weights.data(), routes.weights, weights.size() * sizeof(float), Stream{});
  }
  backend.synchronize(Stream{});
  ckpt::SafetensorsWriter writer;
  writer.add("output", DType::f32, {tokens, data.out.cols}, output);
  writer.add("topk_ids", DType::i32, {tokens, top_k}, ids);
  writer.add("topk_weights", DType::f32, {tokens, top_k}, weights);
  stages.add_to(writer);
  writer.write(o.out);
}

}  // namespace

int layer_command(const Options& options) {
  Terminal terminal(options.quiet);
  check_options(options);
  app::OpenedModel model = open_for_layer(options, terminal);
  const LayerSpec spec = layer_spec(model, options.layer);
  const LayerInput input = read_input(options.hidden, spec);
  const auto layer = model::load_moe_layer(model.config, *model.weights, app::decoder_options(model), options.layer);
  Backend& backend = *model.backend;
  DeviceData data(backend, input, spec, model.compute, layer->workspace_bytes(input.tokens));
  StageCopies stages(backend);
  if (options.dump_stages) data.input.stages = &stages;
  data.input.routed_only = options.routed_only;
  Workspace workspace(data.workspace.data(), data.workspace.bytes());
  const MoeRoutes routes = layer->forward(data.input, data.out, workspace, Stream{});
  write_result(options, backend, data, routes, spec.routing.slots(), stages);
  terminal.note(fmt::format("layer {}: {} tokens, recipe {}, runner {} > {}", options.layer, input.tokens,
                            recipe_info(model.problems[static_cast<std::size_t>(options.layer)].recipe).name,
                            model.selections[static_cast<std::size_t>(options.layer)].chosen->name(), options.out));
  return 0;
}

}  // namespace sluice::cli
