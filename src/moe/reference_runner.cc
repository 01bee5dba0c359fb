#include "moe/reference_runner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "moe/input_scales.h"
#include "moe/permutation.h"
#include "moe/reference_stages.h"
#include "moe/runner_checks.h"
#include "moe/stages.h"

namespace sluice {
namespace {

using reference::Gemm;
using reference::OperandRows;
using reference::Rounding;
using reference::RoundingPoints;
using reference::Workers;

// Tokens are worked on in chunks, which bounds the scratch; rows do not depend on each other, so no bit depends on it.
constexpr std::int64_t kChunkTokens = 256;

class ReferenceExperts final : public PreparedExperts {
 public:
  LayerSpec layer;
  Recipe recipe = Recipe::f32;
  RoundingPoints points;
  bool upstream_gate_alpha = false;
  ExpertWeights weights;
  LayerInputScales input_scales;

  // Bytes of the mapped codes, which are all read.
  std::int64_t resident_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto* list : {&weights.gate, &weights.up, &weights.down}) {
      for (const QuantTensor& w : *list) bytes += dtype_bytes(w.codes.dtype, w.codes.rows * w.codes.cols);
    }
    return bytes;
  }
};

// Scratch rows of one chunk; row i belongs to route routes[i], which counts from the first token of the batch.
struct Rows {
  Permutation sorted;                // routes counted from the chunk's first token
  std::int64_t* routes = nullptr;    // [R]
  const float** by_route = nullptr;  // [chunk tokens * k] slot row, or nullptr where the slot is skipped
  OperandRows x;                     // [R, W]
  float* gate = nullptr;             // [R, I]
  float* up = nullptr;               // [R, I]
  OperandRows intermediate;          // [R, I]
  float* slot_rows = nullptr;        // [R, W]
  float* sum = nullptr;              // [W]
};

std::size_t bytes_of(std::int64_t count, std::size_t element_bytes) {
  return Workspace::rounded_bytes(static_cast<std::size_t>(count) * element_bytes);
}

std::int64_t longest_row(const LayerSpec& layer) { return std::max(layer.width(), layer.intermediate); }

std::size_t chunk_bytes(const LayerSpec& layer, const RoundingPoints& points, std::int64_t tokens, std::int32_t top_k,
                        std::int32_t local_experts) {
  const std::int64_t routes = tokens * top_k;
  return permutation_bytes(tokens, top_k, local_experts) + bytes_of(routes, sizeof(std::int64_t)) +
         bytes_of(routes, sizeof(float*)) + reference::operand_bytes(points.gemm1_input, routes, layer.width()) +
         reference::operand_bytes(points.intermediate, routes, layer.intermediate) +
         2 * bytes_of(routes * layer.intermediate, sizeof(float)) + bytes_of(routes * layer.width(), sizeof(float)) +
         bytes_of(layer.width(), sizeof(float));
}

// One call of run on tokens [first, first + tokens).
class Chunk {
 public:
  Chunk(const ReferenceExperts& experts, const RunArgs& args, const Workers& workers, std::int64_t first,
        std::int64_t tokens)
      : experts_(experts), layer_(experts.layer), args_(args), workers_(workers), first_(first), tokens_(tokens) {
    Workspace& w = *args.workspace;
    const std::int64_t first_route = first * args.top_k;
    rows_.sorted = permute(args.ids + first_route, tokens, args.top_k, args.slots, w);
    const std::int64_t total = rows_.sorted.total();
    rows_.routes = w.take<std::int64_t>(total);
    for (std::int64_t i = 0; i < total; ++i) rows_.routes[i] = rows_.sorted.routes[i] + first_route;
    rows_.by_route = w.take<const float*>(tokens * args.top_k);
    rows_.x = reference::take_rows(experts.points.gemm1_input, total, layer_.width(), w);
    rows_.gate = w.take<float>(total * layer_.intermediate);
    rows_.up = w.take<float>(total * layer_.intermediate);
    rows_.intermediate = reference::take_rows(experts.points.intermediate, total, layer_.intermediate, w);
    rows_.slot_rows = w.take<float>(total * layer_.width());
    rows_.sum = w.take<float>(layer_.width());
  }

  void compute() {
    reference::gather(layer_, experts_.points, args_, rows_.routes, rows_.sorted.total(), experts_.input_scales.gemm1,
                      rows_.x);
    for (std::int32_t e = 0; e < rows_.sorted.experts; ++e) compute_expert(e);
    record_stages();
    write_output();
  }

 private:
  bool gated() const { return is_gated(layer_.activation.kind); }

  void compute_expert(std::int32_t e) {
    const std::int64_t begin = rows_.sorted.offsets[e], count = rows_.sorted.offsets[e + 1] - begin;
    if (count == 0) return;
    const ExpertWeights& w = experts_.weights;
    const RoundingPoints& points = experts_.points;
    float* gate = gated() ? rows_.gate + begin * layer_.intermediate : nullptr;
    float* up = rows_.up + begin * layer_.intermediate;
    const OperandRows x = rows_.x.from(begin), intermediate = rows_.intermediate.from(begin);
    if (gated()) gemm1(w.gate[e], w.gate[e].tensor_scale, bias(w.gate_bias, e), x, count, gate);
    gemm1(w.up[e], up_scale(e), bias(w.up_bias, e), x, count, up);
    activate_rows(layer_.activation, points, gate, up, count, experts_.input_scales.gemm2, intermediate);
    float* out = rows_.slot_rows + begin * layer_.width();
    const QuantTensor& down = w.down[e];
    gemm(
        Gemm{&down, down.tensor_scale, bias(w.down_bias, e), intermediate, out, count, Rounding::none, points.slot_row},
        points, workers_);
  }

  void gemm1(const QuantTensor& weight, float scale, const BiasView* bias, const OperandRows& x, std::int64_t count,
             float* y) const {
    const RoundingPoints& points = experts_.points;
    gemm(Gemm{&weight, scale, bias, x, y, count, points.gemm1_output, Rounding::none}, points, workers_);
  }

  float up_scale(std::int32_t e) const {
    const ExpertWeights& w = experts_.weights;
    return experts_.upstream_gate_alpha && gated() ? w.gate[e].tensor_scale : w.up[e].tensor_scale;
  }

  const BiasView* bias(const std::vector<BiasView>& list, std::int32_t e) const {
    return list.empty() ? nullptr : &list[e];
  }

  void record_stages() const {
    if (args_.stages == nullptr) return;
    record_operands(stage::kGemm1Input, rows_.x);
    if (gated()) record(stage::kGate, rows_.gate, layer_.intermediate);
    record(stage::kUp, rows_.up, layer_.intermediate);
    record_operands(stage::kIntermediate, rows_.intermediate);
    record(stage::kSlotRows, rows_.slot_rows, layer_.width());
  }

  void record(std::string_view name, const float* rows, std::int64_t width) const {
    args_.stages->record(name, dense_view(rows, DType::f32, rows_.sorted.total(), width), rows_.routes);
  }

  // Debugging: may allocate.
  void record_operands(std::string_view name, const OperandRows& rows) const {
    const std::int64_t total = rows_.sorted.total();
    std::vector<float> values(static_cast<std::size_t>(total * rows.cols));
    for (std::int64_t i = 0; i < total; ++i) dequantize_operands(rows, i, values.data() + i * rows.cols);
    record(name, values.data(), rows.cols);
    const reference::RowExtents n = reference::row_extents(rows.format, rows.cols);
    record_extra(name, stage::kCodes, rows.codes, DType::u8, n.code_bytes);
    record_extra(name, stage::kBlockScales, rows.block_scales, DType::u8, n.block_scales);
    record_extra(name, stage::kSumScales, rows.sum_scales, DType::f32, n.sum_scales);
  }

  void record_extra(std::string_view stage, std::string_view suffix, const void* data, DType type,
                    std::int64_t extent) const {
    if (extent == 0) return;
    const std::string name = std::string(stage) + std::string(suffix);
    args_.stages->record(name, dense_view(data, type, rows_.sorted.total(), extent), rows_.routes);
  }

  void write_output() {
    const std::int64_t first_route = first_ * args_.top_k, count = tokens_ * args_.top_k;
    std::fill_n(rows_.by_route, count, nullptr);
    for (std::int64_t i = 0; i < rows_.sorted.total(); ++i) {
      rows_.by_route[rows_.sorted.routes[i]] = rows_.slot_rows + i * layer_.width();
    }
    if (args_.routes) {
      for (std::int64_t r = 0; r < count; ++r) write_route(first_route + r, rows_.by_route[r]);
      return;
    }
    for (std::int64_t t = 0; t < tokens_; ++t) write_sum(first_ + t, rows_.by_route + t * args_.top_k);
  }

  void write_route(std::int64_t route, const float* row) const {
    if (row == nullptr) return reference::store_zeros(args_.routes, route);
    reference::store_row(args_.routes, route, row);
  }

  void write_sum(std::int64_t t, const float* const* slot_rows) const {
    constexpr float kAlreadyWeighted = 1.0f;
    const float* weights = layer_.weight_on_input ? &kAlreadyWeighted : args_.weights + t * args_.top_k;
    reference::weighted_sum(slot_rows, weights, args_.top_k, layer_.width(), rows_.sum);
    reference::store_row(args_.sum, t, rows_.sum);
  }

  const ReferenceExperts& experts_;
  const LayerSpec& layer_;
  const RunArgs& args_;
  const Workers& workers_;
  std::int64_t first_;
  std::int64_t tokens_;
  Rows rows_;
};

class ReferenceRunner final : public Runner {
 public:
  explicit ReferenceRunner(ThreadPool* pool) : pool_(pool) {}

  std::string_view name() const override { return "reference"; }

  Verdict supports(const Problem& problem) const override {
    if (problem.device.kind != DeviceKind::cpu) return Verdict::no("runs on the CPU only");
    if (problem.graph) return Verdict::no("cannot be captured in a graph");
    if (problem.layer.weight_on_input && problem.layer.routing.slots() != 1) {
      return Verdict::no("weights on the input need k = 1");
    }
    return Verdict::yes();
  }

  bool takes_quantized_rows(const Problem& problem) const override {
    return quantizes_to_nvfp4(problem.recipe) && !problem.layer.weight_on_input;
  }

  std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const override {
    const Verdict verdict = supports(problem);
    if (!verdict.ok) fail(ErrorCode::unsupported, "runner reference: " + verdict.reason);
    auto experts = std::make_unique<ReferenceExperts>();
    experts->layer = problem.layer;
    experts->recipe = problem.recipe;
    experts->points = reference::rounding_points(problem.recipe);
    experts->upstream_gate_alpha = problem.upstream_gate_alpha;
    reload(*experts, std::move(weights));
    return experts;
  }

  void reload(PreparedExperts& prepared, ExpertWeights&& weights) const override {
    auto& experts = own<ReferenceExperts>(prepared);
    check_weights(experts.layer, weights);
    check_formats(experts.recipe, weights);
    experts.input_scales = layer_input_scales(experts.recipe, weights.input_scales);
    experts.weights = std::move(weights);
  }

  std::size_t workspace_bytes(const Problem& problem, std::int64_t tokens) const override {
    const std::int64_t chunk = std::min(tokens, kChunkTokens);
    return bytes_of(threads() * longest_row(problem.layer), sizeof(float)) +
           chunk_bytes(problem.layer, reference::rounding_points(problem.recipe), chunk, problem.layer.routing.slots(),
                       problem.layer.routing.total_experts());
  }

  void run(const PreparedExperts& prepared, const RunArgs& args) const override {
    const auto& experts = own<const ReferenceExperts>(prepared);
    check_run_args(experts.layer, experts.recipe, experts.weights.count(), args, InputKinds::plain_or_quantized);
    const Workspace::Scope scope(*args.workspace);
    Workers workers{pool_, nullptr, longest_row(experts.layer)};
    workers.weight_rows = args.workspace->take<float>(threads() * workers.longest);

    const std::int64_t tokens = args.tokens();
    const std::int64_t valid =
        args.valid_tokens != nullptr ? std::clamp<std::int64_t>(*args.valid_tokens, 0, tokens) : tokens;
    for (std::int64_t first = 0; first < valid; first += kChunkTokens) {
      const Workspace::Scope chunk_scope(*args.workspace);
      Chunk(experts, args, workers, first, std::min(kChunkTokens, valid - first)).compute();
    }
    write_padding(args, valid);
  }

 private:
  std::int64_t threads() const { return pool_ == nullptr ? 1 : pool_->size(); }

  template <class Experts, class Prepared>
  static Experts& own(Prepared& prepared) {
    auto* experts = dynamic_cast<Experts*>(&prepared);
    if (experts == nullptr) fail(ErrorCode::usage, "runner reference was given the experts of another runner");
    return *experts;
  }

  static void write_padding(const RunArgs& args, std::int64_t valid) {
    const TensorView& out = args.sum ? args.sum : args.routes;
    const std::int64_t first = args.sum ? valid : valid * args.top_k;
    for (std::int64_t r = first; r < out.rows; ++r) reference::store_zeros(out, r);
  }

  ThreadPool* pool_;
};

}  // namespace

std::unique_ptr<Runner> make_reference_runner(ThreadPool* pool) { return std::make_unique<ReferenceRunner>(pool); }

}  // namespace sluice
