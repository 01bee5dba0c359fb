// The staged proof of a recipe (architecture section 5), for any runner that records stages (moe/stages.h):
//
//   const ProofReport report = staged_proof(runner, problem, weights, batch);
//   EXPECT_TRUE(report.ok()) << report.text();
//
// weights: canonical, e.g. quantized_weights(options, recipe); batch: random_batch. prove_shapes() below does that for
// all shapes, so that the caller only loops over recipes and activations (see staged_proof_test.cc).
//
//   gemm1_input    codes and scales equal to the quantisers in numerics/ on the hidden rows
//   gate, up       within the accumulation bound (numerics/tolerance.h) of float64 sums over the runner's own codes
//   intermediate   scales and codes equal to the quantised float64 activation of those float64 sums, except where the
//                  value before rounding lies within the bound of a tie: counted, at most kMaxTieShare. Codes that
//                  differ because the activation itself cancels in fp32 (1 + erf of a negative gate) are counted apart
//   slot_rows      within the bound of float64 sums over the runner's own codes, after one rounding
//   sum            fp32 in slot order over the runner's own slot rows, bit by bit
// A runner that cannot record gate and up (a fused kernel) leaves both away; the rest stands on its own.
#pragma once

#include <cfloat>
#include <string>
#include <vector>

#include "cpu/gemm_activation_oracle.h"
#include "moe/input_scales.h"
#include "moe/quantized_layer.h"
#include "moe/reference_stages.h"
#include "moe/runner_harness.h"
#include "moe/stage_dump.h"
#include "moe/staged_operands.h"
#include "moe/stages.h"
#include "numerics/tolerance.h"

namespace sluice::testing {

inline constexpr double kMaxTieShare = 0.005;
inline constexpr double kMaxVagueShare = 0.1;  // about one gate in ten lies where geglu has lost half of its digits

struct ProofReport {
  std::map<std::string, StageCount> stages;

  bool ok() const {
    for (const auto& [name, c] : stages) {
      const auto checked = static_cast<double>(c.checked);
      if (c.checked == 0 || c.wrong > 0) return false;
      if (static_cast<double>(c.ties) > std::max(1.0, kMaxTieShare * checked)) return false;
      if (static_cast<double>(c.vague) > std::max(1.0, kMaxVagueShare * checked)) return false;
    }
    return !stages.empty();
  }
  bool failed_at(const std::string& stage) const {
    const auto found = stages.find(stage);
    return found != stages.end() && found->second.wrong > 0;
  }
  void merge(const ProofReport& other) {
    for (const auto& [name, count] : other.stages) stages[name].merge(count);
  }
  std::string text() const {
    std::string out;
    for (const auto& [name, c] : stages) {
      out += name + ": " + std::to_string(c.checked) + " checked, " + std::to_string(c.ties) + " next to a tie, " +
             std::to_string(c.vague) + " lost to cancellation, " + std::to_string(c.wrong) + " wrong" +
             (c.wrong > 0 ? ", first " + c.first : "") + "\n";
    }
    return out;
  }
};

class StagedProof {
 public:
  StagedProof(const Problem& problem, const ExpertWeights& weights, const Batch& batch)
      : problem_(problem),
        layer_(problem.layer),
        points_(reference::rounding_points(problem.recipe)),
        weights_(weights),
        batch_(batch),
        input_scales_(layer_input_scales(problem.recipe, weights.input_scales)) {}

  ProofReport check(const StageDump& dump, const std::vector<float>& output) {
    report_ = {};
    dump_ = &dump;
    for (std::int64_t route = 0; route < batch_.tokens * batch_.top_k; ++route) {
      const std::int64_t e = raw(batch_.ids[route]);
      if (e < 0 || e >= weights_.count() || !dump.keeps(route)) continue;
      check_route(route, e);
    }
    check_sum(output);
    return report_;
  }

 private:
  using Row = std::vector<float>;

  StageCount& count(const std::string& stage) { return report_.stages[stage]; }

  void check_route(std::int64_t route, std::int64_t e) {
    const std::string where = "route " + std::to_string(route);
    const RecordedRow x =
        recorded_row(*dump_, std::string(stage::kGemm1Input), route, points_.gemm1_input, layer_.width());
    const RecordedRow inner =
        recorded_row(*dump_, std::string(stage::kIntermediate), route, points_.intermediate, layer_.intermediate);
    const bool complete = !x.values.empty() && !inner.values.empty();
    count("complete").add(complete, where + " lacks values, codes or scales");
    if (!complete) return;
    check_input(route, x, where);
    const bool gated = is_gated(layer_.activation.kind);
    const bool gate_alpha = problem_.upstream_gate_alpha;
    const std::vector<Known> gate =
        gated ? gemm1(weights_.gate, weights_.gate, weights_.gate_bias, e, x) : std::vector<Known>();
    const std::vector<Known> up =
        gemm1(weights_.up, gate_alpha && gated ? weights_.gate : weights_.up, weights_.up_bias, e, x);
    if (gated) check_floats(stage::kGate, route, gate);
    check_floats(stage::kUp, route, up);
    const std::vector<Known> act = activated(gate, up);
    if (!inner.codes.empty()) {
      check_row_scales(act, inner, points_.intermediate, input_scales_.gemm2, where, count("intermediate.scales"));
    }
    check_row_codes(act, inner, points_.intermediate, input_scales_.gemm2, where, count("intermediate"));
    check_slot_row(route, e, inner, where);
  }

  // Bit by bit: the input is known exactly.
  void check_input(std::int64_t route, const RecordedRow& got, const std::string& where) {
    Row row = hidden_row(route);
    RecordedRow expected;
    expected.values = row;
    const reference::RowExtents n = reference::row_extents(points_.gemm1_input, layer_.width());
    expected.codes.resize(n.code_bytes);
    expected.block_scales.resize(n.block_scales);
    expected.sum_scales.resize(n.sum_scales);
    quantize(row, expected);
    count("gemm1_input.scales")
        .add(got.block_scales == expected.block_scales && got.sum_scales == expected.sum_scales, where);
    StageCount& codes = count("gemm1_input");
    for (std::size_t i = 0; i < got.codes.size(); ++i) codes.add(got.codes[i] == expected.codes[i], where, i);
    for (std::size_t c = 0; c < row.size(); ++c) {
      const float scale =
          got.sum_scales.empty() ? 1.0f : got.sum_scales[c * got.sum_scales.size() / padded(row.size())];
      const float stands_for = got.codes.empty() ? expected.values[c] : got.operands[c] * scale;
      codes.add(got.values[c] == stands_for, where, c);
    }
  }

  // Width at which columns map evenly to sum scales.
  std::size_t padded(std::size_t cols) const {
    return points_.gemm1_input == reference::RowFormat::fp8_group ? (cols + 127) / 128 * 128 : cols;
  }

  Row hidden_row(std::int64_t route) const {
    const std::int64_t t = route / batch_.top_k;
    Row row;
    for (std::int64_t c = 0; c < batch_.width; ++c) {
      const bool f32 = batch_.dtype == DType::f32;
      const float v = f32 ? batch_.view().row<float>(t)[c] : to_float(batch_.view().row<Bf16>(t)[c]);
      const float weighted = layer_.weight_on_input ? batch_.weights[route] * v : v;
      row.push_back(problem_.recipe == Recipe::f32 ? weighted : round_to_bf16(weighted));
    }
    return row;
  }

  void quantize(const Row& row, RecordedRow& out) const {
    using reference::RowFormat;
    switch (points_.gemm1_input) {
      case RowFormat::f32:
      case RowFormat::bf16:
        return;
      case RowFormat::fp8_row:
        out.sum_scales[0] = input_scales_.gemm1 != 0.0f ? input_scales_.gemm1 : fp8_scale(finite_amax(row));
        return quantize_fp8_row_with_scale(row, out.sum_scales[0], out.codes);
      case RowFormat::fp8_group:
        return quantize_fp8_group_row(row, out.codes, out.sum_scales);
      case RowFormat::nvfp4:
        out.sum_scales[0] = input_scales_.gemm1;
        return quantize_nvfp4_row(row, 1.0f / input_scales_.gemm1, out.codes, out.block_scales);
      case RowFormat::mxfp8:
        return quantize_mxfp8_row(row, out.codes, out.block_scales);
    }
  }

  // Operand rows of a matrix, decoded once.
  const float* weight_operands(const QuantTensor& w, std::int64_t n) {
    Row& all = operands_[w.codes.data];
    if (all.empty()) {
      all.resize(static_cast<std::size_t>(w.codes.rows * w.codes.cols));
      for (std::int64_t r = 0; r < w.codes.rows; ++r) decode_operands(w, r, all.data() + r * w.codes.cols);
    }
    return all.data() + n * w.codes.cols;
  }

  void decode_operands(const QuantTensor& w, std::int64_t n, float* row) const {
    using reference::WeightOperand;
    if (points_.weight == WeightOperand::codes) return decode_row_codes(w, n, row);
    if (points_.weight == WeightOperand::block_scaled) return decode_row_blocks(w, n, row);
    decode_row(w, n, row);
    if (points_.weight != WeightOperand::decoded_bf16) return;
    for (std::int64_t c = 0; c < w.codes.cols; ++c) row[c] = round_to_bf16(row[c]);
  }

  // The scaled sum of one output in float64, and how far fp32 sums in the order of the recipe may be from it.
  Known project(const QuantTensor& weight, float w_scale, std::int64_t n, const RecordedRow& x) {
    using reference::SumScale;
    const float* w = weight_operands(weight, n);
    const std::int64_t cols = weight.codes.cols;
    const bool blocks = points_.sum_scale == SumScale::per_segment;
    double value = 0.0, size = 0.0, largest_scale = 1.0;
    for (std::int64_t begin = 0; begin < cols; begin += points_.segment_k) {
      double scale = 1.0, sum = 0.0, sum_size = 0.0;
      if (blocks) scale = x.sum_scales[begin / points_.segment_k] * decode_block_scale(weight.block_scale, n, begin);
      for (std::int64_t c = begin; c < std::min(begin + points_.segment_k, cols); ++c) {
        const double product = static_cast<double>(x.operands[c]) * w[c];
        sum += product;
        sum_size += std::fabs(product);
      }
      largest_scale = std::max(largest_scale, scale);
      value += sum * scale;
      size += sum_size * scale;
    }
    const tolerance::DotOrder order{cols, points_.segment_k, DType::f32, problem_.recipe != Recipe::f32};
    const std::int64_t depth = tolerance::rounding_depth(order) + (blocks ? 1 : 0);
    const double bound =
        tolerance::gamma(depth, detail::kUnit) * size + largest_scale * tolerance::underflow_bound(order);
    return scaled({value, bound}, weight, w_scale, n, x);
  }

  // The scales of the whole sum, each one rounding.
  Known scaled(Known k, const QuantTensor& weight, float w_scale, std::int64_t n, const RecordedRow& x) const {
    using reference::SumScale;
    double scale = 1.0, roundings = 1.0;
    if (points_.sum_scale == SumScale::weight) scale = w_scale;
    if (points_.sum_scale == SumScale::alpha) scale = x.sum_scales[0] * w_scale;
    if (points_.sum_scale == SumScale::x_then_w) {
      scale = static_cast<double>(x.sum_scales[0]) * (decode_block_scale(weight.block_scale, n, 0) * w_scale);
      roundings = 2.0;
    }
    if (scale == 1.0) return k;
    const double value = k.value * scale;
    return {value, k.bound * scale * (1 + 3 * detail::kUnit) + roundings * detail::kUnit * std::fabs(value)};
  }

  static Known with_bias(Known k, const std::vector<BiasView>& list, std::int64_t e, std::int64_t n) {
    if (list.empty()) return k;
    const double value = k.value + decode_bias(list[e], n);
    return {value, k.bound + detail::kUnit * (std::fabs(value) + k.bound)};
  }

  std::vector<Known> gemm1(const std::vector<QuantTensor>& list, const std::vector<QuantTensor>& scale_of,
                           const std::vector<BiasView>& bias, std::int64_t e, const RecordedRow& x) {
    std::vector<Known> out;
    for (std::int64_t n = 0; n < layer_.intermediate; ++n) {
      Known k = project(list[e], scale_of[e].tensor_scale, n, x);
      if (problem_.recipe == Recipe::nvfp4_w4a4_cutlass) k = rounded_to_bf16(k);
      out.push_back(with_bias(k, bias, e, n));
    }
    return out;
  }

  void check_floats(std::string_view stage, std::int64_t route, const std::vector<Known>& expected) {
    const std::string name(stage);
    if (!dump_->has(name)) return;
    const Row got = dump_->row<float>(name, route);
    const std::string where = "route " + std::to_string(route);
    StageCount& at = count(name);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      const bool ok = n < got.size() && std::fabs(got[n] - expected[n].value) <= expected[n].bound;
      at.add(ok, where, static_cast<std::int64_t>(n));
    }
  }

  // The activation of the exact sums; its bound covers the error of the sums and of the fp32 activation.
  std::vector<Known> activated(const std::vector<Known>& gate, const std::vector<Known>& up) const {
    std::vector<Known> out;
    const ActivationSpec& spec = layer_.activation;
    for (std::size_t n = 0; n < up.size(); ++n) {
      const Known g = gate.empty() ? Known{} : gate[n], u = up[n];
      const double value = cpu::testing::expected(spec, g.value, u.value).value;
      double moved = 0.0;
      for (const double dg : {-g.bound, g.bound}) {
        for (const double du : {-u.bound, u.bound}) {
          moved = std::max(moved, std::fabs(cpu::testing::expected(spec, g.value + dg, u.value + du).value - value));
        }
      }
      const double evaluation = 2.0 * cpu::testing::bound(spec, g.value, u.value);
      const Known k{value, 1.01 * moved + evaluation, evaluation};
      out.push_back(problem_.recipe == Recipe::nvfp4_w4a4_cutlass ? rounded_to_bf16(k) : k);
    }
    return out;
  }

  void check_slot_row(std::int64_t route, std::int64_t e, const RecordedRow& inner, const std::string& where) {
    const Row got = dump_->row<float>(std::string(stage::kSlotRows), route);
    StageCount& rows = count("slot_rows");
    if (static_cast<std::int64_t>(got.size()) != layer_.width()) return rows.add(false, where + " is missing");
    const QuantTensor& down = weights_.down[e];
    for (std::int64_t h = 0; h < layer_.width(); ++h) {
      const Known k = with_bias(project(down, down.tensor_scale, h, inner), weights_.down_bias, e, h);
      if (problem_.recipe == Recipe::f32) {
        rows.add(std::fabs(got[h] - k.value) <= k.bound, where, h);
      } else {
        detail::check_code(rows, k, 1.0, 0.0, got[h], round_to_bf16, where, h);
      }
    }
  }

  void check_sum(const Row& output) {
    for (std::int64_t t = 0; t < batch_.tokens; ++t) {
      if (!dump_->keeps(t * batch_.top_k)) continue;
      Row sum(static_cast<std::size_t>(batch_.width), 0.0f);
      for (std::int32_t s = 0; s < batch_.top_k; ++s) {
        const Row row = dump_->row<float>(std::string(stage::kSlotRows), t * batch_.top_k + s);
        const float weight = layer_.weight_on_input ? 1.0f : batch_.weights[t * batch_.top_k + s];
        for (std::size_t c = 0; c < row.size(); ++c) sum[c] += weight * row[c];
      }
      for (std::int64_t c = 0; c < batch_.width; ++c) {
        count("sum").add(output[t * batch_.width + c] == sum[c], "token", t);
      }
    }
  }

  Problem problem_;
  LayerSpec layer_;
  reference::RoundingPoints points_;
  const ExpertWeights& weights_;
  const Batch& batch_;
  LayerInputScales input_scales_;
  ProofReport report_;
  const StageDump* dump_ = nullptr;
  std::map<const void*, Row> operands_;
};

// Runs the whole batch; checks the routes of every `token_step`-th token.
inline ProofReport staged_proof(const Runner& runner, const Problem& problem, const ExpertWeights& weights,
                                const Batch& batch, std::int64_t token_step = 1) {
  StageDump dump(batch.top_k, token_step);
  RunOptions options;
  options.stages = &dump;
  const auto prepared = runner.prepare(problem, ExpertWeights(weights));
  const std::vector<float> output = run_batch(runner, *prepared, problem, batch, options);
  return StagedProof(problem, weights, batch).check(dump, output);
}

// Sizes of one random layer.
struct ProofShape {
  std::int64_t hidden = 768;
  std::int64_t intermediate = 32;
  std::int64_t tokens = 3;
  std::int32_t experts = 3;
  std::int32_t top_k = 2;
};

// K of architecture 4.5 in GEMM1, and in GEMM2 one that is long and one that ends inside a scale block.
inline const std::vector<ProofShape>& proof_shapes() {
  static const std::vector<ProofShape> shapes = {{768, 32},  {2048, 32},      {2880, 32},      {7168, 16},
                                                 {96, 2880}, {64, 768, 3, 3}, {160, 232, 3, 3}};
  return shapes;
}

inline Problem proof_problem(Recipe recipe, ActivationKind activation, bool bias, const ProofShape& shape) {
  Problem p;
  p.recipe = recipe;
  p.layer.hidden = shape.hidden;
  p.layer.intermediate = shape.intermediate;
  p.layer.activation.kind = activation;
  if (activation == ActivationKind::situ) p.layer.activation.beta = 4.0f;
  p.layer.has_bias = bias;
  p.layer.routing.experts = shape.experts;
  p.layer.routing.top_k = shape.top_k;
  p.max_tokens = shape.tokens;
  return p;
}

// One random layer of a recipe through a runner.
inline ProofReport prove_recipe(const Runner& runner, Recipe recipe, ActivationKind activation, bool bias,
                                const ProofShape& shape, const FormatOptions& format = {}, std::uint64_t seed = 3) {
  LayerOptions o;
  const Problem problem = proof_problem(recipe, activation, bias, shape);
  o.layer = problem.layer;
  o.seed = seed;
  const DType hidden = recipe == Recipe::f32 ? DType::f32 : DType::bf16;
  o.dtype = hidden;
  const Batch batch = random_batch(o.layer, shape.tokens, hidden, RoutePattern::uniform, seed + 1);
  return staged_proof(runner, problem, quantized_weights(o, recipe, format), batch);
}

// All shapes with and without biases, as one report.
inline ProofReport prove_shapes(const Runner& runner, Recipe recipe, ActivationKind activation,
                                const std::vector<ProofShape>& shapes = proof_shapes()) {
  ProofReport all;
  for (const ProofShape& shape : shapes) {
    for (const bool bias : {false, true}) all.merge(prove_recipe(runner, recipe, activation, bias, shape));
  }
  return all;
}

}  // namespace sluice::testing
