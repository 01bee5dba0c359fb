// moe_probe layer DIR: the reference runner on one layer.
//   in:  spec.json, gate.bin, up.bin [E, I, W], down.bin [E, W, I], gate_bias.bin, up_bias.bin [E, I],
//        down_bias.bin [E, W] of type "bias_dtype"; hidden.bin [T, W]; ids.i32, weights.f32 [T, k]
//        "weight_dtype" e4m3 or e2m1 (two a byte): also NAME_scales.bin [E, block rows, block columns] of type
//        "scale_dtype" with blocks of "block_rows" x "block_cols" where there is such a file, NAME_tensor.f32 [E], and
//        NAME_input.f32 [E global] static input scales
//   out: out.f32 (sum [T, W] or routes [T * k, W]); stage_NAME.bin and stage_NAME.i64 (rows and their routes)
// "output" is sum_f32, sum_bf16 or routes.
#include <memory>
#include <string_view>

#include "core/thread_pool.h"
#include "moe/moe_probe.h"
#include "moe/reference_runner.h"
#include "moe/runner.h"
#include "numerics/bf16.h"

namespace sluice::probe {
namespace {

DType dtype_of(const std::string& name) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e2m1, DType::e8m0}) {
    if (dtype_name(type) == name) return type;
  }
  fail(ErrorCode::usage, "unknown type " + name);
}

LayerSpec layer_spec(const Request& request) {
  LayerSpec layer;
  layer.hidden = request.integer("hidden");
  layer.expert_width = request.integer("width");
  layer.intermediate = request.integer("intermediate");
  layer.has_bias = request.flag("has_bias");
  layer.weight_on_input = request.flag("weight_on_input");
  layer.routing.experts = static_cast<std::int32_t>(request.integer("experts"));
  layer.routing.top_k = static_cast<std::int32_t>(request.integer("top_k"));
  ActivationSpec& a = layer.activation;
  a.kind = by_name<ActivationKind>(request.text("activation"), 8, activation_name);
  a.alpha = request.number("alpha");
  a.beta = request.number("beta");
  a.limit = request.number("limit");
  a.linear_beta = request.number("linear_beta");
  return layer;
}

using Bytes = std::vector<std::byte>;

// What all matrices of a layer have in common.
struct Format {
  DType codes = DType::bf16;
  DType scales = DType::f32;
  DType bias = DType::bf16;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

Format format_of(const Request& request) {
  return {dtype_of(request.text("weight_dtype")), dtype_of(request.text("scale_dtype")),
          dtype_of(request.text("bias_dtype")), request.integer("block_rows"), request.integer("block_cols")};
}

// Files live as long as the weights.
struct Files {
  std::vector<std::unique_ptr<Bytes>> blobs;
  const Bytes& read(const std::string& path) {
    return *blobs.emplace_back(std::make_unique<Bytes>(read_array<std::byte>(path)));
  }
};

// Matrix e of a [count, rows, cols] file, with its scales.
void add_matrices(std::vector<QuantTensor>& list, const Request& request, const std::string& name, Files& files,
                  const Format& f, std::int64_t count, std::int64_t rows, std::int64_t cols) {
  const Bytes& codes = files.read(request.path(name + ".bin"));
  const Bytes& scales = files.read(request.path(name + "_scales.bin"));
  const auto tensor = read_array<float>(request.path(name + "_tensor.f32"));
  const std::int64_t scale_rows = (rows + f.block_rows - 1) / f.block_rows;
  const std::int64_t scale_cols = (cols + f.block_cols - 1) / f.block_cols;
  const std::int64_t row_bytes = dtype_bytes(f.codes, cols);
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t stride = f.codes == DType::e2m1 ? 2 * row_bytes : cols;
    QuantTensor t;
    t.codes = {codes.data() + e * rows * row_bytes, f.codes, rows, cols, stride, 1};
    if (!scales.empty()) {
      const void* first = scales.data() + dtype_bytes(f.scales, e * scale_rows * scale_cols);
      t.block_scale = {first, f.scales, f.block_rows, f.block_cols, scale_cols, 1};
    }
    if (!tensor.empty()) t.tensor_scale = tensor.at(e);
    list.push_back(t);
  }
}

void add_biases(std::vector<BiasView>& list, const Bytes& file, DType type, std::int64_t count, std::int64_t rows) {
  for (std::int64_t e = 0; e < count && !file.empty(); ++e) {
    list.push_back({file.data() + dtype_bytes(type, e * rows), type, rows, 1});
  }
}

ExpertWeights load_weights(const Request& request, const LayerSpec& layer, std::int64_t held) {
  const Format format = format_of(request);
  const auto files = std::make_shared<Files>();
  const std::int64_t rows = layer.intermediate, width = layer.width();
  const bool gated = is_gated(layer.activation.kind);
  ExpertWeights w;
  if (gated) add_matrices(w.gate, request, "gate", *files, format, held, rows, width);
  add_matrices(w.up, request, "up", *files, format, held, rows, width);
  add_matrices(w.down, request, "down", *files, format, held, width, rows);
  if (gated) add_biases(w.gate_bias, files->read(request.path("gate_bias.bin")), format.bias, held, rows);
  add_biases(w.up_bias, files->read(request.path("up_bias.bin")), format.bias, held, rows);
  add_biases(w.down_bias, files->read(request.path("down_bias.bin")), format.bias, held, width);
  w.input_scales.gate = read_array<float>(request.path("gate_input.f32"));
  w.input_scales.up = read_array<float>(request.path("up_input.f32"));
  w.input_scales.down = read_array<float>(request.path("down_input.f32"));
  w.keep_alive = files;
  return w;
}

class FileSink final : public StageSink {
 public:
  explicit FileSink(const Request& request) : request_(request) {}
  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    const std::string base = request_.path("stage_" + std::string(stage));
    const std::int64_t bytes = dtype_bytes(rows.dtype, rows.rows * rows.cols);
    write_array(base + ".bin", static_cast<const std::byte*>(rows.data), static_cast<std::size_t>(bytes), true);
    write_array(base + ".i64", route, static_cast<std::size_t>(rows.rows), true);
  }

 private:
  const Request& request_;
};

void write_output(const Request& request, const TensorView& out) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    for (std::int64_t c = 0; c < out.cols; ++c) {
      values.push_back(out.dtype == DType::f32 ? out.row<float>(r)[c] : to_float(out.row<Bf16>(r)[c]));
    }
  }
  write_array(request.path("out.f32"), values.data(), values.size());
}

}  // namespace

void run_layer(const Request& request) {
  Problem problem;
  problem.layer = layer_spec(request);
  problem.recipe = recipe_from_name(request.text("recipe")).value();
  problem.upstream_gate_alpha = request.flag("upstream_gate_alpha");
  ThreadPool pool(static_cast<int>(request.integer("threads")));
  const auto runner = make_reference_runner(&pool);
  const SlotRange slots{static_cast<std::int32_t>(request.integer("first_slot")),
                        static_cast<std::int32_t>(request.integer("held"))};
  const auto prepared = runner->prepare(problem, load_weights(request, problem.layer, slots.count));

  const DType compute = problem.recipe == Recipe::f32 ? DType::f32 : DType::bf16;
  const auto hidden = read_array<std::byte>(request.path("hidden.bin"));
  const auto ids = read_array<SlotId>(request.path("ids.i32"));
  const auto weights = read_array<float>(request.path("weights.f32"));
  const std::int32_t top_k = problem.layer.routing.top_k;
  const std::int64_t tokens = static_cast<std::int64_t>(ids.size()) / top_k, width = problem.layer.width();
  const auto valid = static_cast<std::int32_t>(request.integer("valid_tokens"));
  const bool routes = request.text("output") == "routes";
  const DType out_type = request.text("output") == "sum_bf16" ? DType::bf16 : DType::f32;
  std::vector<float> memory(static_cast<std::size_t>(tokens * (routes ? top_k : 1) * width), 1e30f);
  std::vector<std::byte> scratch(runner->workspace_bytes(problem, tokens));
  Workspace workspace(scratch.data(), scratch.size());
  FileSink sink(request);

  RunArgs args;
  args.hidden = dense_view(hidden.data(), compute, tokens, width);
  args.ids = ids.data();
  args.weights = weights.data();
  args.top_k = top_k;
  args.valid_tokens = valid >= 0 ? &valid : nullptr;
  args.slots = slots;
  TensorView& out = routes ? args.routes : args.sum;
  out = dense_view(memory.data(), out_type, tokens * (routes ? top_k : 1), width);
  args.workspace = &workspace;
  args.stages = &sink;
  runner->run(*prepared, args);
  write_output(request, out);
}

}  // namespace sluice::probe
