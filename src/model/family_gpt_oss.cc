// GPT-OSS: attention sinks, every second layer with a sliding window, biases everywhere, YaRN; experts with interleaved
// gate and up, clamped SwiGLU, and a softmax over the chosen experts' logits only.
#include <string>

#include "core/error.h"
#include "model/family.h"
#include "model/family_fields.h"

namespace sluice::model {
namespace {

using ckpt::Fields;
using ckpt::kCountRange;
using ckpt::kDimRange;

constexpr ckpt::IntRange kWindowRange{1, (std::int64_t{1} << 31) - 1};

// Whether each layer has the window: `layer_types`, or every second layer beginning with the first.
std::vector<bool> windowed_layers(const Fields& f, std::int64_t layers) {
  const std::vector<std::string> types = f.get_strings({"layer_types"});
  if (!types.empty() && static_cast<std::int64_t>(types.size()) != layers) {
    fail(ErrorCode::bad_input, f.origin() + ": layer_types: " + std::to_string(types.size()) + " entries",
         "one for each of " + std::to_string(layers) + " layers");
  }
  std::vector<bool> windowed;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string type = !types.empty() ? types[static_cast<std::size_t>(i)]
                             : i % 2 == 0   ? "sliding_attention"
                                            : "full_attention";
    if (type != "sliding_attention" && type != "full_attention") {
      fail(ErrorCode::unsupported, f.origin() + ": layer_types: \"" + type + "\"",
           "sliding_attention or full_attention");
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

LayerSpec experts_of(const Fields& f, std::int64_t hidden) {
  LayerSpec spec;
  spec.hidden = hidden;
  spec.intermediate = f.get_int({"intermediate_size"}, kDimRange);
  spec.has_bias = true;
  spec.activation.kind = ActivationKind::swiglu_oai;
  spec.activation.alpha = 1.702f;
  spec.activation.beta = 1.0f;
  spec.activation.limit = static_cast<float>(f.get_number({"swiglu_limit"}, {0.0, 1e6}, 7.0));
  const std::int64_t experts = f.get_int({"num_local_experts", "num_experts"}, {1, kCountRange.max});
  spec.routing.method = RoutingMethod::topk_softmax;
  spec.routing.experts = static_cast<std::int32_t>(experts);
  spec.routing.top_k = static_cast<std::int32_t>(f.get_int({"num_experts_per_tok", "experts_per_token"}, {1, experts}));
  return spec;
}

ModelConfig configure(const ckpt::HfConfig& hf) {
  const Fields& f = hf.fields();
  ModelConfig m = common_config(hf, gpt_oss_family(), 1e-5);
  BlockSpec block;
  if (!f.has({"rope_scaling", "rope_parameters"})) {
    fail(ErrorCode::bad_input, f.origin() + ": rope_scaling: missing", "the YaRN parameters of the model",
         "the published models have factor 32, original_max_position_embeddings 4096, truncate false");
  }
  block.attention = grouped_attention_of(f, m.hidden, {.theta = 150000.0});
  block.attention.sinks = true;
  block.attention.qkv_bias = block.attention.output_bias = f.get_bool({"attention_bias"}, true);
  block.router_bias = true;
  block.ffn = experts_of(f, m.hidden);
  for (const bool windowed : windowed_layers(f, layers_of(f))) {
    block.attention.window = windowed ? static_cast<std::int32_t>(f.get_int({"sliding_window"}, kWindowRange)) : 0;
    m.layers.push_back(block);
  }
  validate(m);
  return m;
}

ckpt::NameMap names(const ModelConfig&) {
  ckpt::NameMap map = decoder_names();
  add_name(map, Role::sinks, "model.layers.{L}.self_attn.sinks");
  add_name(map, Role::router, "model.layers.{L}.mlp.router.weight");
  add_name(map, Role::router_bias, "model.layers.{L}.mlp.router.bias");
  ckpt::ExpertNames experts;
  experts.files = ckpt::ExpertNames::Files::stacked;
  experts.gate_up_order = ckpt::ExpertNames::GateUp::interleaved;
  experts.transposed = true;  // of the bf16 layout; MXFP4 blocks lie along the inputs, outputs first
  experts.gate_up = "model.layers.{L}.mlp.experts.gate_up_proj";
  experts.down = "model.layers.{L}.mlp.experts.down_proj";
  experts.gate_up_bias = "model.layers.{L}.mlp.experts.gate_up_proj_bias";
  experts.down_bias = "model.layers.{L}.mlp.experts.down_proj_bias";
  // Quantisers that work on linear layers take the experts apart.
  ckpt::ExpertNames single;
  single.gate = "model.layers.{L}.mlp.experts.{E}.gate_proj.weight";
  single.up = "model.layers.{L}.mlp.experts.{E}.up_proj.weight";
  single.down = "model.layers.{L}.mlp.experts.{E}.down_proj.weight";
  single.gate_bias = "model.layers.{L}.mlp.experts.{E}.gate_proj.bias";
  single.up_bias = "model.layers.{L}.mlp.experts.{E}.up_proj.bias";
  single.down_bias = "model.layers.{L}.mlp.experts.{E}.down_proj.bias";
  map.experts = {experts, single};
  return map;
}

}  // namespace

Family gpt_oss_family() { return {"gpt_oss", {"GptOssForCausalLM"}, configure, names}; }

}  // namespace sluice::model
