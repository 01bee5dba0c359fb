#include "cli/layer_pass.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <type_traits>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "cli/session.h"
#include "core/error.h"
#include "core/rounding.h"
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

// The tokens of a dp group: those of the file are shared out evenly.
LayerInput part_of(const LayerInput& all, const Piece& group, const LayerSpec& spec) {
  const Share share = share_of(all.tokens, 1, group);
  const auto cut = [&](const auto& list, std::int64_t width) {
    using List = std::decay_t<decltype(list)>;
    return list.empty() ? List() : List(list.begin() + share.begin * width, list.begin() + share.end * width);
  };
  return {share.count(), cut(all.hidden, spec.hidden), cut(all.ids, spec.routing.slots()),
          cut(all.weights, spec.routing.slots())};
}

// Copies every stage, so that it can be written once the layer is done. Rows come as the runner has them, with the
// route (t * k + s) of each beside them. Those of the layer itself are in the memory of the backend, those of a runner
// in host memory.
class StageCopies final : public StageSink, public LayerStages {
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

  void add_to(ckpt::SafetensorsWriter& writer) const override {
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

app::OpenedModel open_for_layer(const Options& o, const LogSink& log) {
  if (o.routed_only && o.enforce_shared_experts_fusion) {
    fail(ErrorCode::usage, "--routed-only with --enforce-shared-experts-fusion", "one of the two",
         "fused shared experts are routed ones");
  }
  app::LoadOptions load = load_options(o);
  load.device = o.device;
  return app::open_model(o.model, load, log);
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

// Of one rank, in host memory.
LayerResult download(Backend& backend, const DeviceData& data, const MoeRoutes& routes, std::int32_t top_k) {
  LayerResult r;
  r.tokens = data.out.rows;
  r.columns = data.out.cols;
  r.top_k = top_k;
  r.output.resize(static_cast<std::size_t>(r.tokens * r.columns));
  r.ids.resize(static_cast<std::size_t>(r.tokens * top_k));
  r.weights.resize(r.ids.size());
  if (r.tokens > 0) {
    backend.copy_to_host(r.output.data(), data.out.data, r.output.size() * sizeof(float), Stream{});
    backend.copy_to_host(r.ids.data(), routes.ids, r.ids.size() * sizeof(std::int32_t), Stream{});
    backend.copy_to_host(r.weights.data(), routes.weights, r.weights.size() * sizeof(float), Stream{});
  }
  backend.synchronize(Stream{});
  return r;
}

}  // namespace

LayerResult run_layer(const Options& options, const LogSink& log) {
  app::OpenedModel model = open_for_layer(options, log);
  const LayerSpec spec = layer_spec(model, options.layer);
  const LayerInput all = read_input(options.hidden, spec);
  const LayerInput input = part_of(all, model.plan.dp, spec);
  const auto layer = model::load_moe_layer(model.config, *model.weights, app::decoder_options(model), options.layer);
  Backend& backend = *model.backend;
  const std::int64_t most_tokens = ceil_div(all.tokens, model.plan.dp.count);  // of any rank
  DeviceData data(backend, input, spec, model.compute, layer->workspace_bytes(most_tokens));
  const auto stages = std::make_shared<StageCopies>(backend);
  if (options.dump_stages) data.input.stages = stages.get();
  data.input.routed_only = options.routed_only;
  Workspace workspace(data.workspace.data(), data.workspace.bytes());
  const MoeRoutes routes = layer->forward(data.input, data.out, workspace, Stream{});
  LayerResult result = download(backend, data, routes, spec.routing.slots());
  result.stages = stages;
  const auto i = static_cast<std::size_t>(options.layer);
  result.recipe = recipe_info(model.problems[i].recipe).name;
  result.runner = model.selections[i].chosen->name();
  return result;
}

void write_layer(const LayerResult& r, const std::string& path) {
  ckpt::SafetensorsWriter writer;
  writer.add("output", DType::f32, {r.tokens, r.columns}, r.output);
  writer.add("topk_ids", DType::i32, {r.tokens, r.top_k}, r.ids);
  writer.add("topk_weights", DType::f32, {r.tokens, r.top_k}, r.weights);
  if (r.stages) r.stages->add_to(writer);
  writer.write(path);
}

}  // namespace sluice::cli
