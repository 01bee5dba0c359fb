// moe_probe layer DIR: the reference runner on one layer.
//   in:  spec.json, gate.bin, up.bin [E, I, W], down.bin [E, W, I], gate_bias.bin, up_bias.bin [E, I],
//        down_bias.bin [E, W] of type "weight_dtype"; hidden.bin [T, W]; ids.i32, weights.f32 [T, k]
//   out: out.f32 (sum [T, W] or routes [T * k, W]); stage_NAME.f32 and stage_NAME.i64 (rows and their routes)
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
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
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

// Matrix e of a [count, rows, cols] file.
void add_matrices(std::vector<QuantTensor>& list, const Bytes& file, DType type, std::int64_t count, std::int64_t rows,
                  std::int64_t cols) {
  for (std::int64_t e = 0; e < count; ++e) {
    const void* data = file.data() + dtype_bytes(type, e * rows * cols);
    list.push_back({{data, type, rows, cols, cols, 1}, {}, 1.0f});
  }
}

void add_biases(std::vector<BiasView>& list, const Bytes& file, DType type, std::int64_t count, std::int64_t rows) {
  for (std::int64_t e = 0; e < count && !file.empty(); ++e) {
    list.push_back({file.data() + dtype_bytes(type, e * rows), type, rows, 1});
  }
}

ExpertWeights load_weights(const Request& request, const LayerSpec& layer, std::int64_t held) {
  const DType type = dtype_of(request.text("weight_dtype"));
  const auto files = std::make_shared<std::vector<Bytes>>();
  for (const char* name : {"gate.bin", "up.bin", "down.bin", "gate_bias.bin", "up_bias.bin", "down_bias.bin"}) {
    files->push_back(read_array<std::byte>(request.path(name)));
  }
  const std::vector<Bytes>& f = *files;
  const std::int64_t rows = layer.intermediate, width = layer.width();
  ExpertWeights w;
  if (is_gated(layer.activation.kind)) add_matrices(w.gate, f[0], type, held, rows, width);
  add_matrices(w.up, f[1], type, held, rows, width);
  add_matrices(w.down, f[2], type, held, width, rows);
  if (is_gated(layer.activation.kind)) add_biases(w.gate_bias, f[3], type, held, rows);
  add_biases(w.up_bias, f[4], type, held, rows);
  add_biases(w.down_bias, f[5], type, held, width);
  w.keep_alive = files;
  return w;
}

class FileSink final : public StageSink {
 public:
  explicit FileSink(const Request& request) : request_(request) {}
  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    const std::string base = request_.path("stage_" + std::string(stage));
    write_array(base + ".f32", static_cast<const float*>(rows.data), static_cast<std::size_t>(rows.rows * rows.cols),
                true);
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
