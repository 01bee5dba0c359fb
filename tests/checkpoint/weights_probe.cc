// Puts the readers of quantised weights on a pipe, so that the Python tests can compare what they decode.
//   weights_probe load FOLDER OUT [POLICY]   all weights decoded to f32 into OUT (safetensors); one JSON object about
//   them weights_probe check FOLDER [POLICY]      the report of check_checkpoint as one JSON object
// The model is that of config.json, in the names of Qwen3-MoE; "probe" there holds the arrangement of the experts.
// An error goes to standard error, its code is the exit code. Only the tests call it.
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/check.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/scheme_compressed_tensors.h"
#include "checkpoint/scheme_fp8.h"
#include "checkpoint/scheme_modelopt.h"
#include "checkpoint/scheme_mxfp4.h"
#include "checkpoint/scheme_plain.h"
#include "core/json.h"

namespace {

using namespace sluice;
using namespace sluice::ckpt;

struct Model {
  std::int64_t hidden = 0, inner = 0, experts = 0, layers = 0, vocab = 0;
  bool bias = false;
  NameMap names;

  LayerSpec layer() const {
    LayerSpec spec;
    spec.hidden = hidden;
    spec.intermediate = inner;
    spec.routing.experts = static_cast<std::int32_t>(experts);
    spec.routing.top_k = 1;
    spec.has_bias = bias;
    return spec;
  }
};

ExpertNames expert_names(bool stacked, const std::string& order, bool transposed) {
  ExpertNames n;
  n.files = stacked ? ExpertNames::Files::stacked : ExpertNames::Files::per_expert;
  n.transposed = transposed;
  if (order == "gate_then_up") n.gate_up_order = ExpertNames::GateUp::gate_then_up;
  if (order == "up_then_gate") n.gate_up_order = ExpertNames::GateUp::up_then_gate;
  if (order == "interleaved") n.gate_up_order = ExpertNames::GateUp::interleaved;
  const std::string stem = stacked ? "model.layers.{L}.mlp.experts." : "model.layers.{L}.mlp.experts.{E}.";
  const std::string end = stacked ? "" : ".weight";
  n.gate = stem + "gate_proj" + end;
  n.up = stem + "up_proj" + end;
  n.gate_up = stem + "gate_up_proj" + end;
  n.down = stem + "down_proj" + end;
  n.gate_up_bias = stem + "gate_up_proj_bias";
  n.down_bias = stem + "down_proj_bias";
  if (order == "separate") {
    n.gate_up.clear();
  } else {
    n.gate.clear();
    n.up.clear();
  }
  return n;
}

Model model_of(const Checkpoint& checkpoint) {
  const Fields& f = checkpoint.config().fields();
  const Fields probe = f.get_object({"probe"});
  Model m;
  m.hidden = f.get_int({"hidden_size"}, kDimRange);
  m.inner = f.get_int({"moe_intermediate_size"}, kDimRange);
  m.experts = f.get_int({"num_experts"}, kCountRange);
  m.layers = f.get_int({"num_hidden_layers"}, kCountRange);
  m.vocab = f.get_int({"vocab_size"}, kVocabRange);
  m.bias = probe.get_bool({"bias"}, false);
  m.names.tensors = {{"output", "lm_head.weight"},
                     {"q", "model.layers.{L}.self_attn.q_proj.weight"},
                     {"router", "model.layers.{L}.mlp.gate.weight"},
                     {"shared_down", "model.layers.{L}.mlp.shared_expert.down_proj.weight"}};
  m.names.experts.push_back(expert_names(probe.get_bool({"stacked"}, false), probe.get_string({"order"}, "separate"),
                                         probe.get_bool({"transposed"}, false)));
  m.names.experts.push_back(expert_names(false, "separate", false));
  return m;
}

std::vector<Scheme> all_schemes() {
  return {plain_scheme(), modelopt_scheme(), compressed_tensors_scheme(), fp8_scheme(), mxfp4_scheme()};
}

using DenseSink = std::function<void(const std::string& name, const QuantTensor&, Recipe)>;
using ExpertSink = std::function<void(std::int64_t layer, const ExpertWeights&, Recipe)>;

void walk(const Model& m, WeightSource& source, const DenseSink& dense, const ExpertSink& experts) {
  dense("output", source.tensor("output", kOutsideLayers, m.vocab, m.hidden),
        source.tensor_recipe("output", kOutsideLayers));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string at = std::to_string(i);
    dense("q." + at, source.tensor("q", i, m.hidden, m.hidden), source.tensor_recipe("q", i));
    dense("router." + at, source.tensor("router", i, m.experts, m.hidden), source.tensor_recipe("router", i));
    if (source.has("shared_down", i)) {
      dense("shared_down." + at, source.tensor("shared_down", i, m.hidden, m.inner),
            source.tensor_recipe("shared_down", i));
    }
    experts(i, source.experts(i, m.layer()), source.expert_recipe(i));
    source.release(i);
  }
}

// Decoded weights on their way into a file.
class Out {
 public:
  void add(const std::string& name, const QuantTensor& w) {
    std::vector<float> all(static_cast<std::size_t>(w.codes.rows * w.codes.cols));
    for (std::int64_t n = 0; n < w.codes.rows; ++n) decode_row(w, n, all.data() + n * w.codes.cols);
    keep(name, {w.codes.rows, w.codes.cols}, std::move(all));
  }
  void add(const std::string& name, const BiasView& bias) {
    std::vector<float> all;
    for (std::int64_t n = 0; n < bias.count; ++n) all.push_back(decode_bias(bias, n));
    keep(name, {bias.count}, std::move(all));
  }
  void add(const std::string& name, const std::vector<float>& values) {
    if (!values.empty()) keep(name, {static_cast<std::int64_t>(values.size())}, values);
  }
  void write(const std::string& path) const { writer_.write(path); }

 private:
  void keep(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    kept_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    writer_.add(name, DType::f32, std::move(shape), *kept_.back());
  }
  SafetensorsWriter writer_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

void add_experts(Out& out, std::int64_t layer, const ExpertWeights& w) {
  const std::string at = "." + std::to_string(layer);
  for (std::size_t e = 0; e < w.up.size(); ++e) {
    const std::string end = at + "." + std::to_string(e);
    out.add("gate" + end, w.gate[e]);
    out.add("up" + end, w.up[e]);
    out.add("down" + end, w.down[e]);
    if (w.up_bias.empty()) continue;
    out.add("gate_bias" + end, w.gate_bias[e]);
    out.add("up_bias" + end, w.up_bias[e]);
    out.add("down_bias" + end, w.down_bias[e]);
  }
  out.add("input.gate" + at, w.input_scales.gate);
  out.add("input.up" + at, w.input_scales.up);
  out.add("input.down" + at, w.input_scales.down);
}

template <class List>
Json::Array texts(const List& list) {
  return Json::Array(list.begin(), list.end());
}

Json formats_json(const std::vector<FormatUse>& formats) {
  Json::Array out;
  for (const FormatUse& f : formats) {
    out.emplace_back(Json::Object{{"role", f.role},
                                  {"format", f.format},
                                  {"weights", f.weights},
                                  {"bytes", static_cast<std::int64_t>(f.bytes)},
                                  {"first", f.first_layer},
                                  {"last", f.last_layer}});
  }
  return out;
}

void load(const std::string& folder, const std::string& path, const ScalePolicy& policy) {
  const auto checkpoint = Checkpoint::open(folder);
  const Model model = model_of(*checkpoint);
  const std::vector<Scheme> schemes = all_schemes();
  const Scheme& scheme = find_scheme(schemes, *checkpoint);
  SchemeOptions options;
  options.scales = policy;
  const auto source = scheme.open(*checkpoint, model.names, options);
  Out out;
  Json::Object recipes;
  walk(
      model, *source,
      [&](const std::string& name, const QuantTensor& w, Recipe recipe) {
        out.add(name, w);
        if (w.input_scale != 0.0f) out.add("input." + name, std::vector<float>{w.input_scale});
        recipes.emplace_back(name, recipe_info(recipe).name);
      },
      [&](std::int64_t layer, const ExpertWeights& w, Recipe recipe) {
        add_experts(out, layer, w);
        recipes.emplace_back("experts." + std::to_string(layer), recipe_info(recipe).name);
      });
  out.write(path);
  const Json about(Json::Object{{"scheme", scheme.name},
                                {"recipes", std::move(recipes)},
                                {"unused", texts(source->unused())},
                                {"notes", texts(source->notes())},
                                {"formats", formats_json(source->formats())}});
  std::cout << about.dump() << "\n";
}

void check(const std::string& folder, const ScalePolicy& policy, bool block_scales) {
  const auto checkpoint = Checkpoint::open(folder);
  const Model model = model_of(*checkpoint);
  CheckOptions options;
  options.scales = policy;
  options.block_scales = block_scales;
  const CheckReport report =
      check_checkpoint(*checkpoint, all_schemes(), model.names, options, [&](WeightSource& source) {
        walk(
            model, source, [](auto&&...) {}, [](auto&&...) {});
      });
  Json::Array findings;
  for (const Finding& f : report.findings) {
    findings.emplace_back(Json::Object{{"severity", severity_name(f.severity)},
                                       {"kind", finding_kind_name(f.kind)},
                                       {"message", f.message},
                                       {"tensor", f.tensor},
                                       {"file", f.file},
                                       {"count", f.count},
                                       {"tensors", texts(f.tensors)}});
  }
  const Json out(Json::Object{{"ok", report.ok()},
                              {"scheme", report.scheme},
                              {"description", report.description},
                              {"formats", formats_json(report.formats)},
                              {"findings", std::move(findings)}});
  std::cout << out.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  try {
    if (command == "load" && argc > 3) {
      load(argv[2], argv[3], ScalePolicy::parse(argc > 4 ? argv[4] : "strict"));
    } else if (command == "check") {
      check(argv[2], ScalePolicy::parse(argc > 3 ? argv[3] : "strict"), argc < 5);
    } else {
      std::cerr << "usage: weights_probe load FOLDER OUT [POLICY] | check FOLDER [POLICY [-]]\n";
      return 2;
    }
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return e.exit_code();
  }
  return 0;
}
