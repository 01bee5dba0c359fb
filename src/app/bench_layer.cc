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

}  // namespace

MoeBatch MoeBatch::row(std::int64_t t) const {
  MoeBatch one{1, hidden, top_k, {}, {}, {}};
  one.rows.assign(rows.begin() + t * hidden, rows.begin() + (t + 1) * hidden);
  one.ids.assign(ids.begin() + t * top_k, ids.begin() + (t + 1) * top_k);
  one.weights.assign(weights.begin() + t * top_k, weights.begin() + (t + 1) * top_k);
  return one;
}

BenchLayer::BenchLayer(const MoeShape& shape, std::uint64_t seed)
    : shape_(shape), state_(seed), seed_(seed), values_(std::make_shared<std::vector<Bf16>>()) {
  problem_.layer.hidden = shape.hidden;
  problem_.layer.intermediate = shape.intermediate;
  problem_.layer.routing.experts = shape.experts;
  problem_.layer.routing.top_k = shape.top_k;
  problem_.layer.activation.kind = shape.activation;
  problem_.layer.has_bias = shape.has_bias;
  problem_.row_invariant = true;
  values_->resize(static_cast<std::size_t>(shape.hidden * shape.intermediate + kSlack));
  for (Bf16& v : *values_) v = to_bf16(uniform() * kWeightSigma * 1.7320508f);
}

std::uint64_t BenchLayer::random() { return mix(state_ += kStep); }

float BenchLayer::uniform() { return static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f; }

QuantTensor BenchLayer::matrix(std::int64_t rows, std::int64_t cols, std::uint64_t place) const {
  const auto offset = mix(seed_ * kStep + place) % static_cast<std::uint64_t>(kSlack);
  return {{values_->data() + offset, DType::bf16, rows, cols, cols, 1}, {}, 1.0f};
}

ExpertWeights BenchLayer::weights() const {
  const LayerSpec& layer = problem_.layer;
  ExpertWeights w;
  for (std::int32_t e = 0; e < shape_.local_experts; ++e) {
    const std::uint64_t place = static_cast<std::uint64_t>(e) * 8;
    if (is_gated(shape_.activation)) w.gate.push_back(matrix(layer.intermediate, layer.hidden, place));
    w.up.push_back(matrix(layer.intermediate, layer.hidden, place + 1));
    w.down.push_back(matrix(layer.hidden, layer.intermediate, place + 2));
    if (!layer.has_bias) continue;
    const auto bias = [&](std::uint64_t i, std::int64_t count) {
      return BiasView{matrix(1, count, place + i).codes.data, DType::bf16, count, 1};
    };
    if (is_gated(shape_.activation)) w.gate_bias.push_back(bias(3, layer.intermediate));
    w.up_bias.push_back(bias(4, layer.intermediate));
    w.down_bias.push_back(bias(5, layer.hidden));
  }
  w.keep_alive = values_;
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

double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  if (difference == 0.0) return 0.0;
  const double distance = std::sqrt(difference / norm);
  return std::isfinite(distance) ? distance : INFINITY;
}

void require_correct(double error, double bound, std::int64_t tokens) {
  if (error <= bound) return;
  fail(ErrorCode::check_failed,
       "runner cpu is " + std::to_string(error) + " away from the reference at " + std::to_string(tokens) +
           " tokens (relative L2)",
       "at most " + std::to_string(bound), "no time is given for a wrong result");
}

}  // namespace sluice::app
