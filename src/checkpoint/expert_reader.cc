#include "checkpoint/expert_reader.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "checkpoint/messages.h"

namespace sluice::ckpt {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// Of biases that another rank adds.
constexpr float kZero = 0.0f;

// The outputs `part` of gate or up in a tensor that may hold both, `width` inputs each.
OutputSlice slice_of(ExpertNames::GateUp order, bool up, std::int64_t intermediate, const Share& part,
                     std::int64_t width) {
  const std::int64_t half = up ? 1 : 0;
  const Share cols{0, width};
  switch (order) {
    case ExpertNames::GateUp::gate_then_up:
      return {(up ? intermediate : 0) + part.begin, 1, part.count(), half, cols};
    case ExpertNames::GateUp::up_then_gate:
      return {(up ? 0 : intermediate) + part.begin, 1, part.count(), half, cols};
    case ExpertNames::GateUp::interleaved:
      return {half + 2 * part.begin, 2, part.count(), half, cols};
    case ExpertNames::GateUp::separate:
      break;
  }
  return {part.begin, 1, part.count(), 0, cols};
}

void check_slice(const ExpertSlice& slice, std::int64_t layer, const LayerSpec& spec) {
  const Share inner = slice.inner_of(spec.intermediate);
  bool ok = inner.begin >= 0 && inner.begin < inner.end && inner.end <= spec.intermediate;
  for (const LogicalId e : slice.experts) ok = ok && raw(e) >= 0 && raw(e) < spec.routing.experts;
  if (ok) return;
  fail(ErrorCode::usage, fmt::format("layer {}: a part of its experts that they do not have", layer),
       fmt::format("experts of {}, elements of I = {}", spec.routing.experts, spec.intermediate));
}

}  // namespace

ExpertReader::ExpertReader(WeightReader& reader, std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice,
                           Tally tally)
    : reader_(reader),
      tensors_(reader.tensors()),
      layer_(layer),
      spec_(spec),
      slice_(slice),
      held_(static_cast<std::size_t>(spec.routing.experts)),
      names_(tensors_.expert_names(layer)),
      tally_(std::move(tally)) {
  check_slice(slice, layer, spec);
  for (const LogicalId e : slice.experts) held_[static_cast<std::size_t>(raw(e))] = true;
}

ExpertWeights ExpertReader::read(bool leave_checks) {
  const std::int64_t inner = spec_.intermediate, width = spec_.width();
  const Share part = slice_.inner_of(inner);
  const ExpertNames::GateUp order = names_.gate_up_order;
  const bool together = order != ExpertNames::GateUp::separate;
  const std::int64_t outputs = together ? 2 * inner : inner;
  const std::string_view gate = together ? names_.gate_up : names_.gate;
  const std::string_view up = together ? names_.gate_up : names_.up;
  const std::string_view gate_bias = together ? names_.gate_up_bias : names_.gate_bias;
  const std::string_view up_bias = together ? names_.gate_up_bias : names_.up_bias;
  ExpertWeights out;
  if (is_gated(spec_.activation.kind)) {
    read_projection({gate, gate_bias, outputs, width, slice_of(order, false, inner, part, width)},
                    {out.gate, out.gate_bias, out.input_scales.gate});
  }
  read_projection({up, up_bias, outputs, width, slice_of(order, true, inner, part, width)},
                  {out.up, out.up_bias, out.input_scales.up});
  read_projection({names_.down, names_.down_bias, width, inner, {0, 1, width, 0, part}, part.begin != 0},
                  {out.down, out.down_bias, out.input_scales.down});
  out.keep_alive = tensors_.keep_alive();
  out.release = tensors_.page_release();
  if (!leave_checks) {
    reader_.finish_checks();
    return out;
  }
  out.release = [checks = reader_.leave_checks(), drop = std::move(out.release)](const void* data, std::size_t bytes) {
    checks->check_codes(data);
    drop(data, bytes);
  };
  return out;
}

// One tensor an expert; stacked: the same one for all.
std::vector<std::string> ExpertReader::names_of(std::string_view pattern) const {
  std::vector<std::string> names;
  const std::int64_t files = stacked() ? 1 : spec_.routing.experts;
  for (std::int64_t e = 0; e < files; ++e) names.push_back(expand(pattern, layer_, e));
  return names;
}

void ExpertReader::read_projection(const Projection& p, const Target& target) {
  const std::vector<std::string> names = names_of(p.pattern);
  std::vector<const ModuleParts*> modules;
  if (!guarded([&] { modules = tensors_.require_all(names); })) modules = tensors_.find_all(names);
  modules.resize(static_cast<std::size_t>(spec_.routing.experts), modules.front());
  target.input_scales.assign(modules.size(), kNone);
  has_input_scales_ = false;
  bool readable = true;
  for (std::size_t e = 0; e < modules.size(); ++e) {
    const auto expert = static_cast<std::int64_t>(e);
    readable = readable || !stacked();  // a fault of a stacked tensor is one fault
    if (modules[e] != nullptr && readable) readable = guarded([&] { add_weight(p, *modules[e], expert, target); });
    if (target.weights.size() == e) target.weights.push_back(without_data(p));
  }
  put_in_slots(target.weights);
  if (has_input_scales_) {
    guarded([&] { reader_.complete_input_scales(layer_, names.front(), target.input_scales); });
  } else {
    target.input_scales.clear();
  }
  if (spec_.has_bias) guarded([&] { read_biases(p, target.biases); });
}

// From one of each expert to one of each slot.
void ExpertReader::put_in_slots(std::vector<QuantTensor>& weights) const {
  if (slice_.experts.empty()) return;
  std::vector<QuantTensor> all = std::exchange(weights, {});
  for (const LogicalId e : slice_.experts) weights.push_back(all[static_cast<std::size_t>(raw(e))]);
}

// What stands for a weight after a fault, and for one of another rank.
QuantTensor ExpertReader::without_data(const Projection& p) {
  QuantTensor out;
  out.codes = {nullptr, DType::bf16, p.slice.rows, p.slice.cols.count(), p.inputs, 1};
  return out;
}

void ExpertReader::read_biases(const Projection& p, std::vector<BiasView>& biases) {
  std::vector<const ModuleParts*> modules = tensors_.require_all(names_of(p.bias_pattern));
  modules.resize(static_cast<std::size_t>(spec_.routing.experts), modules.front());
  std::vector<BiasView> all;
  for (const ModuleParts* parts : modules) {
    const TensorEntry& tensor = *parts->codes();
    tensors_.check_dtype(tensor, {DType::bf16, DType::f16, DType::f32});
    std::vector<std::int64_t> shape = {p.outputs};
    if (stacked()) shape.insert(shape.begin(), spec_.routing.experts);
    tensors_.check_shape(tensor, shape);
    const auto e = static_cast<std::int64_t>(all.size());
    const std::int64_t first = (stacked() ? e : 0) * p.outputs + p.slice.first;
    const bool here = holds(e) && !p.bias_elsewhere;
    if (!here) tensors_.mark_used_elsewhere(tensor);
    all.push_back(here ? BiasView{tensors_.use(tensor, layer_) + dtype_bytes(tensor.dtype, first), tensor.dtype,
                                  p.slice.rows, p.slice.step}
                       : BiasView{&kZero, DType::f32, p.slice.rows, 0});
  }
  if (slice_.experts.empty()) {
    biases = std::move(all);
    return;
  }
  for (const LogicalId e : slice_.experts) biases.push_back(all[static_cast<std::size_t>(raw(e))]);
}

void ExpertReader::add_weight(const Projection& p, const ModuleParts& parts, std::int64_t expert,
                              const Target& target) {
  WeightRequest request;
  request.parts = &parts;
  request.layer = layer_;
  request.experts = stacked() ? spec_.routing.experts : 0;
  request.expert = stacked() ? -1 : expert;
  request.outputs = p.outputs;
  request.inputs = p.inputs;
  request.halves = p.outputs == p.slice.rows ? 1 : 2;
  request.transposed = names_.transposed;
  request.elsewhere = !stacked() && !holds(expert);
  if (stacked()) request.held = slice_.experts;
  const StoredWeight& weight = stored(request);
  check_same_format(*parts.codes(), weight);
  check_cut(request, p.slice, weight);
  const std::int64_t e = stacked() ? expert : 0;
  target.weights.push_back(holds(expert) ? cut(weight, request, e, p.slice) : without_data(p));
  if (weight.input_scale.empty()) return;
  has_input_scales_ = true;
  target.input_scales[static_cast<std::size_t>(expert)] = weight.input_scale.at(request, e, p.slice.half);
}

const StoredWeight& ExpertReader::stored(const WeightRequest& request) {
  if (request.parts == last_parts_) return last_;
  last_parts_ = nullptr;
  last_ = reader_.read(request);
  last_parts_ = request.parts;
  if (!request.elsewhere) tally_(*request.parts, last_);
  return last_;
}

void ExpertReader::check_same_format(const TensorEntry& codes, const StoredWeight& weight) {
  if (first_codes_ == nullptr) {
    first_codes_ = &codes;
    first_format_ = weight.format;
  }
  if (weight.format == first_format_) {
    if (!weight.format) tensors_.check_dtype(codes, {first_codes_->dtype});
    return;
  }
  tensors_.fail_tensor(
      FindingKind::unsupported, codes, "stored as " + format_text(weight.format, codes.dtype),
      fmt::format("{}, as {}", format_text(first_format_, first_codes_->dtype), quote(first_codes_->name)),
      "all experts of a layer share one format here");
}

void ExpertReader::check_cut(const WeightRequest& request, const OutputSlice& slice, const StoredWeight& weight) const {
  if (!splits_blocks(weight, slice)) return;
  const std::int64_t rows = weight.whole.block_scale.block_rows;
  tensors_.fail_tensor(FindingKind::unsupported, *request.parts->codes(),
                       fmt::format("gate and up of {} rows share blocks of {} rows", slice.rows, rows),
                       fmt::format("a multiple of {}, or gate and up in tensors of their own", rows));
}

bool ExpertReader::guarded(const std::function<void()>& read) const {
  FindingList* findings = reader_.options().findings;
  if (findings == nullptr) {
    read();
    return true;
  }
  try {
    read();
    return true;
  } catch (const Error& error) {
    findings->add(error);
    return false;
  }
}

}  // namespace sluice::ckpt
