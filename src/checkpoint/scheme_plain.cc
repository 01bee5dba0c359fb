#include "checkpoint/scheme_plain.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "checkpoint/messages.h"
#include "checkpoint/tensor_reader.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr std::initializer_list<DType> kPlainTypes = {DType::bf16, DType::f16, DType::f32};

// Integers are codes of weights only where the name says so: checkpoints also hold integer tables and masks.
bool is_quantised(const TensorEntry& tensor) {
  switch (tensor.dtype) {
    case DType::e4m3:
    case DType::e5m2:
    case DType::e8m0:
    case DType::e2m1:
      return true;
    case DType::u8:
    case DType::i8:
    case DType::i32:
      return tensor.name.find("weight") != std::string::npos || tensor.name.find("blocks") != std::string::npos;
    default:
      return false;
  }
}

std::string refusal(const Checkpoint& checkpoint) {
  std::size_t count = 0;
  const TensorEntry* first = nullptr;
  for (const TensorEntry* tensor : checkpoint.tensors()) {
    if (!is_quantised(*tensor)) continue;
    if (count++ == 0) first = tensor;
  }
  if (count == 0) return "";
  std::string method = "not mentioned in config.json";
  if (const auto quantization = checkpoint.config().quantization()) {
    method = "quant_method " + quantization->get_string({"quant_method"}, "unknown");
  }
  return fmt::format("{} tensors are quantised ({}), among them {} of type {}", count, printable(method),
                     quote(first->name), safetensors_dtype_name(first->dtype));
}

// Where one projection of one expert lies in a tensor whose last two dimensions are [out, in], or [in, out] if
// transposed.
struct Slice {
  std::int64_t expert = 0;  // along the first dimension of a stacked tensor
  std::int64_t first = 0;   // output row
  std::int64_t step = 1;    // output rows between two rows of the projection
  std::int64_t rows = 0;
};

// The outputs of gate or up in a tensor that holds both.
Slice slice_of(ExpertNames::GateUp order, bool up, std::int64_t intermediate) {
  switch (order) {
    case ExpertNames::GateUp::gate_then_up:
      return {0, up ? intermediate : 0, 1, intermediate};
    case ExpertNames::GateUp::up_then_gate:
      return {0, up ? 0 : intermediate, 1, intermediate};
    case ExpertNames::GateUp::interleaved:
      return {0, up ? 1 : 0, 2, intermediate};
    case ExpertNames::GateUp::separate:
      break;
  }
  return {0, 0, 1, intermediate};
}

const std::byte* at_element(const std::byte* data, DType type, std::int64_t element) {
  return data + dtype_bytes(type, element);
}

// One weight of the experts: its file pattern and the sizes of one expert's part.
struct Projection {
  std::string_view pattern;
  std::string_view bias_pattern;
  std::int64_t outputs = 0;  // of the tensor: 2I where it holds gate and up
  std::int64_t inputs = 0;
  Slice slice;
};

// Reads the experts of one layer.
class ExpertReader {
 public:
  ExpertReader(TensorReader& reader, std::int64_t layer, const LayerSpec& spec)
      : reader_(reader), layer_(layer), spec_(spec), names_(reader.expert_names(layer)) {}

  ExpertWeights read() {
    const std::int64_t inner = spec_.intermediate;
    const bool together = names_.gate_up_order != ExpertNames::GateUp::separate;
    const std::int64_t outputs = together ? 2 * inner : inner;
    const std::string_view gate = together ? names_.gate_up : names_.gate;
    const std::string_view up = together ? names_.gate_up : names_.up;
    const std::string_view gate_bias = together ? names_.gate_up_bias : names_.gate_bias;
    const std::string_view up_bias = together ? names_.gate_up_bias : names_.up_bias;
    ExpertWeights out;
    if (is_gated(spec_.activation.kind)) {
      read_projection({gate, gate_bias, outputs, spec_.width(), slice_of(names_.gate_up_order, false, inner)}, out.gate,
                      out.gate_bias);
    }
    read_projection({up, up_bias, outputs, spec_.width(), slice_of(names_.gate_up_order, true, inner)}, out.up,
                    out.up_bias);
    read_projection({names_.down, names_.down_bias, spec_.width(), inner, {0, 0, 1, spec_.width()}}, out.down,
                    out.down_bias);
    out.keep_alive = reader_.keep_alive();
    return out;
  }

 private:
  bool stacked() const { return names_.files == ExpertNames::Files::stacked; }

  // One tensor an expert; stacked: the same one for all.
  std::vector<const TensorEntry*> tensors_of(std::string_view pattern) const {
    std::vector<std::string> names;
    const std::int64_t files = stacked() ? 1 : spec_.routing.experts;
    for (std::int64_t e = 0; e < files; ++e) names.push_back(expand(pattern, layer_, e));
    std::vector<const TensorEntry*> found = reader_.require_all(names);
    found.resize(static_cast<std::size_t>(spec_.routing.experts), found.front());
    return found;
  }

  void check(const TensorEntry& tensor, std::vector<std::int64_t> shape) const {
    if (stacked()) shape.insert(shape.begin(), spec_.routing.experts);
    reader_.check_dtype(tensor, kPlainTypes);
    reader_.check_shape(tensor, shape);
  }

  void read_projection(const Projection& p, std::vector<QuantTensor>& weights, std::vector<BiasView>& biases) {
    for (const TensorEntry* tensor : tensors_of(p.pattern)) {
      check(*tensor, names_.transposed ? std::vector{p.inputs, p.outputs} : std::vector{p.outputs, p.inputs});
      check_same_type(*tensor);
      const auto e = static_cast<std::int64_t>(weights.size());
      weights.push_back(weight_view(*tensor, p, stacked() ? e : 0));
    }
    if (!spec_.has_bias) return;
    for (const TensorEntry* tensor : tensors_of(p.bias_pattern)) {
      check(*tensor, {p.outputs});
      const auto e = static_cast<std::int64_t>(biases.size());
      const std::int64_t first = (stacked() ? e : 0) * p.outputs + p.slice.first;
      biases.push_back(
          {at_element(reader_.use(*tensor, layer_), tensor->dtype, first), tensor->dtype, p.slice.rows, p.slice.step});
    }
  }

  QuantTensor weight_view(const TensorEntry& tensor, const Projection& p, std::int64_t expert) {
    const std::int64_t output_stride = names_.transposed ? 1 : p.inputs;
    const std::int64_t input_stride = names_.transposed ? p.outputs : 1;
    const std::int64_t first = expert * p.outputs * p.inputs + p.slice.first * output_stride;
    QuantTensor out;
    out.codes = {at_element(reader_.use(tensor, layer_), tensor.dtype, first),
                 tensor.dtype,
                 p.slice.rows,
                 p.inputs,
                 p.slice.step * output_stride,
                 input_stride};
    return out;
  }

  // A runner packs all matrices of a layer in one way.
  void check_same_type(const TensorEntry& tensor) {
    if (first_ == nullptr) first_ = &tensor;
    reader_.check_dtype(tensor, {first_->dtype});
  }

  TensorReader& reader_;
  std::int64_t layer_;
  const LayerSpec& spec_;
  const ExpertNames& names_;
  const TensorEntry* first_ = nullptr;
};

class PlainSource final : public WeightSource {
 public:
  PlainSource(const Checkpoint& checkpoint, NameMap names) : reader_(checkpoint, std::move(names)) {}

  bool has(std::string_view role, std::int64_t layer) const override { return reader_.find(role, layer) != nullptr; }

  QuantTensor tensor(std::string_view role, std::int64_t layer, std::int64_t rows, std::int64_t cols) override {
    const TensorEntry& entry = reader_.require(role, layer);
    reader_.check_dtype(entry, kPlainTypes);
    const std::array<std::int64_t, 2> matrix = {rows, cols};
    const std::size_t rank = rows == 1 && entry.shape.size() == 1 ? 1 : 2;
    reader_.check_shape(entry, std::span(matrix).last(rank));
    QuantTensor out;
    out.codes = {reader_.use(entry, layer), entry.dtype, rows, cols, cols, 1};
    return out;
  }

  ExpertWeights experts(std::int64_t layer, const LayerSpec& spec) override {
    if (spec.routing.fused_shared != 0) {
      fail(ErrorCode::unsupported, fmt::format("layer {}: shared experts fused with routed ones", layer),
           "shared experts as a dense layer of their own");
    }
    if (spec.routing.experts < 1) fail(ErrorCode::usage, fmt::format("layer {} has no experts", layer), "at least one");
    return ExpertReader(reader_, layer, spec).read();
  }

  Recipe expert_recipe(std::int64_t) const override { return Recipe::bf16; }
  void release(std::int64_t layer) override { reader_.release(layer); }
  std::uint64_t bytes(std::int64_t layer) const override { return reader_.bytes(layer); }
  std::vector<std::string> unused() const override { return reader_.unused(); }
  std::vector<std::string> notes() const override { return reader_.notes(); }

 private:
  TensorReader reader_;
};

std::unique_ptr<WeightSource> open_plain(const Checkpoint& checkpoint, NameMap names) {
  return std::make_unique<PlainSource>(checkpoint, std::move(names));
}

}  // namespace

Scheme plain_scheme() { return {"plain", refusal, open_plain}; }

}  // namespace sluice::ckpt
