#include "app/bench_layer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"

namespace sluice::app {
namespace {

// splitmix64
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
constexpr std::int64_t kSlack = 1 << 20;  // elements by which the places of experts differ at most
constexpr float kWeightSigma = 0.02f;

// How a checkpoint stores the weights of a recipe.
struct WeightFormat {
  std::int64_t bits = 16;
  DType scale = DType::f32;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

bool stored_as_nvfp4(Recipe recipe) {
  return recipe == Recipe::nvfp4_w4a16 || recipe == Recipe::nvfp4_w4a4_cutedsl || recipe == Recipe::nvfp4_w4a4_cutlass;
}

WeightFormat weight_format(Recipe recipe) {
  if (stored_as_nvfp4(recipe)) return {4, DType::e4m3, 1, 16};
  switch (recipe) {
    case Recipe::fp8_tensor:
    case Recipe::fp8_block:
      return {8, DType::f32, 128, 128};
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return {4, DType::e8m0, 1, 32};
    default:
      return {};
  }
}

}  // namespace

MoeBatch MoeBatch::row(std::int64_t t) const {
  MoeBatch one{1, hidden, top_k, {}, {}, {}};
  one.rows.assign(rows.begin() + t * hidden, rows.begin() + (t + 1) * hidden);
  one.ids.assign(ids.begin() + t * top_k, ids.begin() + (t + 1) * top_k);
  one.weights.assign(weights.begin() + t * top_k, weights.begin() + (t + 1) * top_k);
  return one;
}

BenchLayer::BenchLayer(const MoeShape& shape, std::uint64_t seed, Recipe recipe)
    : shape_(shape), state_(seed), seed_(seed), blocks_(std::make_shared<Blocks>()) {
  problem_.recipe = recipe;
  problem_.layer.hidden = shape.hidden;
  problem_.layer.intermediate = shape.intermediate;
  problem_.layer.routing.experts = shape.experts;
  problem_.layer.routing.top_k = shape.top_k;
  problem_.layer.activation.kind = shape.activation;
  problem_.layer.has_bias = shape.has_bias;
  problem_.row_invariant = true;
  const std::int64_t elements = shape.hidden * shape.intermediate + kSlack;
  const WeightFormat format = weight_format(recipe);
  blocks_->values.resize(
      static_cast<std::size_t>(format.bits == 16 ? elements : shape.hidden + shape.intermediate + kSlack));
  for (Bf16& v : blocks_->values) v = to_bf16(uniform() * kWeightSigma * 1.7320508f);
  if (format.bits == 16) return;
  blocks_->codes.resize(static_cast<std::size_t>(elements * format.bits / 8));
  for (std::uint8_t& code : blocks_->codes) {
    code = static_cast<std::uint8_t>(random() >> 56);
    if (format.bits == 8 && (code & 0x7Fu) == 0x7Fu) code = 0;  // NaN
  }
  fill_scales(elements / format.block_cols);
}

// Such that weights have about the deviation of the plain ones.
void BenchLayer::fill_scales(std::int64_t count) {
  const auto near = [&](int middle) { return static_cast<std::uint8_t>(middle + static_cast<int>(random() % 5) - 2); };
  for (std::int64_t i = 0; i < count; ++i) {
    blocks_->byte_scales.push_back(near(stored_as_nvfp4(problem_.recipe) ? 0x38 : 120));
    blocks_->float_scales.push_back(1.2e-4f * (1.0f + 0.5f * uniform()));
  }
}

std::uint64_t BenchLayer::random() { return mix(state_ += kStep); }

float BenchLayer::uniform() { return static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f; }

std::int64_t BenchLayer::offset(std::uint64_t place) const {
  return static_cast<std::int64_t>(mix(seed_ * kStep + place) % static_cast<std::uint64_t>(kSlack)) / 64 * 64;
}

BlockScaleView BenchLayer::scales(std::int64_t rows, std::int64_t cols, std::uint64_t place) const {
  const WeightFormat f = weight_format(problem_.recipe);
  const std::int64_t stride = (cols + f.block_cols - 1) / f.block_cols;
  const std::int64_t count = (rows + f.block_rows - 1) / f.block_rows * stride;
  const std::int64_t spare = static_cast<std::int64_t>(blocks_->byte_scales.size()) - count;
  const std::int64_t first = offset(place) % (spare + 1);
  const void* data = f.scale == DType::f32 ? static_cast<const void*>(blocks_->float_scales.data() + first)
                                           : blocks_->byte_scales.data() + first;
  return {data, f.scale, f.block_rows, f.block_cols, stride, 1};
}

QuantTensor BenchLayer::matrix(std::int64_t rows, std::int64_t cols, std::uint64_t place) const {
  const std::int64_t first = offset(place);
  const WeightFormat f = weight_format(problem_.recipe);
  if (f.bits == 16) return {{blocks_->values.data() + first, DType::bf16, rows, cols, cols, 1}, {}, 1.0f};
  QuantTensor t;
  t.codes = {blocks_->codes.data() + first * f.bits / 8, f.bits == 8 ? DType::e4m3 : DType::e2m1, rows, cols, cols, 1};
  if (problem_.recipe == Recipe::fp8_tensor) {
    t.tensor_scale = 1.2e-4f;
    return t;
  }
  t.block_scale = scales(rows, cols, place);
  if (stored_as_nvfp4(problem_.recipe)) t.tensor_scale = 7e-3f;
  return t;
}

BiasView BenchLayer::bias(std::int64_t count, std::uint64_t place) const {
  return {blocks_->values.data() + offset(place), DType::bf16, count, 1};
}

double BenchLayer::expert_bytes() const {
  const WeightFormat f = weight_format(problem_.recipe);
  const double matrices = is_gated(shape_.activation) ? 3.0 : 2.0;
  const double scale_bits = problem_.recipe == Recipe::fp8_tensor ? 0.0 : static_cast<double>(dtype_bits(f.scale));
  const double bits = static_cast<double>(f.bits) +
                      (f.bits == 16 ? 0.0 : scale_bits / static_cast<double>(f.block_rows * f.block_cols));
  return matrices * static_cast<double>(shape_.hidden * shape_.intermediate) * bits / 8.0;
}

ExpertWeights BenchLayer::weights() const {
  const LayerSpec& layer = problem_.layer;
  const bool gated = is_gated(shape_.activation);
  ExpertWeights w;
  for (std::int32_t e = 0; e < shape_.local_experts; ++e) {
    const std::uint64_t place = static_cast<std::uint64_t>(e) * 8;
    if (gated) w.gate.push_back(matrix(layer.intermediate, layer.hidden, place));
    w.up.push_back(matrix(layer.intermediate, layer.hidden, place + 1));
    w.down.push_back(matrix(layer.hidden, layer.intermediate, place + 2));
    if (!layer.has_bias) continue;
    if (gated) w.gate_bias.push_back(bias(layer.intermediate, place + 3));
    w.up_bias.push_back(bias(layer.intermediate, place + 4));
    w.down_bias.push_back(bias(layer.hidden, place + 5));
  }
  if (uses_static_input_scales(problem_.recipe)) {
    // Hidden rows are below 1, and intermediates a few times smaller.
    const float scale = problem_.recipe == Recipe::fp8_tensor ? 1.0f / 448.0f : 1.0f / (448.0f * 6.0f);
    const std::vector<float> all(static_cast<std::size_t>(shape_.experts), scale);
    w.input_scales = {gated ? all : std::vector<float>(), all, all};
  }
  w.keep_alive = blocks_;
  return w;
}

MoeBatch BenchLayer::batch(std::int64_t tokens) {
  MoeBatch b{tokens, shape_.hidden, shape_.top_k, {}, {}, {}};
  b.rows.resize(static_cast<std::size_t>(tokens * shape_.hidden));
  for (Bf16& v : b.rows) v = to_bf16(uniform());
  b.ids.resize(static_cast<std::size_t>(tokens * shape_.top_k));
  b.weights.assign(b.ids.size(), 1.0f / static_cast<float>(shape_.top_k));
  route(b);
  return b;
}

// The first k of a shuffle of all experts, for each token.
void BenchLayer::route(MoeBatch& batch) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(shape_.experts));
  for (std::int32_t e = 0; e < shape_.experts; ++e) experts[e] = e;
  for (std::int64_t t = 0; t < batch.tokens; ++t) {
    for (std::int32_t s = 0; s < batch.top_k; ++s) {
      const auto left = static_cast<std::uint64_t>(shape_.experts - s);
      // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a shape has top_k <= experts
      std::swap(experts[s], experts[s + static_cast<std::int32_t>(random() % left)]);
      batch.ids[t * batch.top_k + s] = SlotId{experts[s]};
    }
  }
}

double BenchLayer::active_experts(const MoeBatch& batch) const {
  std::vector<char> active(static_cast<std::size_t>(shape_.local_experts), 0);
  for (const SlotId id : batch.ids) {
    if (slots().contains(id)) active[raw(id)] = 1;
  }
  return static_cast<double>(std::count(active.begin(), active.end(), 1));
}

double BenchLayer::local_routes(const MoeBatch& batch) const {
  return static_cast<double>(
      std::count_if(batch.ids.begin(), batch.ids.end(), [&](SlotId id) { return slots().contains(id); }));
}

MoeScratch::MoeScratch(const Runner& runner, const Problem& problem, std::int64_t tokens)
    : hidden_(problem.layer.hidden),
      workspace_(host_buffer(runner.workspace_bytes(problem, tokens))),
      out_(static_cast<std::size_t>(tokens * hidden_)) {}

void MoeScratch::run(const Runner& runner, const PreparedExperts& prepared, const MoeBatch& batch, SlotRange slots) {
  Workspace workspace(workspace_.data(), workspace_.bytes());
  RunArgs args;
  args.hidden = dense_view(batch.rows.data(), DType::bf16, batch.tokens, batch.hidden);
  args.ids = batch.ids.data();
  args.weights = batch.weights.data();
  args.top_k = batch.top_k;
  args.slots = slots;
  args.sum = dense_view(out_.data(), DType::bf16, batch.tokens, batch.hidden);
  args.workspace = &workspace;
  runner.run(prepared, args);
}

std::vector<float> MoeScratch::row(std::int64_t t) const {
  std::vector<float> values(static_cast<std::size_t>(hidden_));
  for (std::int64_t h = 0; h < hidden_; ++h) values[h] = to_float(out_[t * hidden_ + h]);
  return values;
}

void require_correct(double error, double bound, std::int64_t tokens) {
  if (error <= bound) return;
  fail(ErrorCode::check_failed,
       "runner cpu is " + std::to_string(error) + " away from the reference at " + std::to_string(tokens) +
           " tokens (relative L2)",
       "at most " + std::to_string(bound), "no time is given for a wrong result");
}

}  // namespace sluice::app
