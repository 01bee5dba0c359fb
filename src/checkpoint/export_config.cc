#include "checkpoint/export_config.h"

#include <algorithm>
#include <unordered_set>

namespace sluice::ckpt {
namespace {

constexpr std::string_view kOldKeys[] = {"quantization_config", "compression_config", "quantization"};

bool is_old_key(std::string_view key) {
  return std::find(std::begin(kOldKeys), std::end(kOldKeys), key) != std::end(kOldKeys);
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

Json strings(const std::vector<std::string>& values) { return Json(Json::Array(values.begin(), values.end())); }

// "model.layers.3.self_attn" of "model.layers.3.self_attn.q_proj".
std::string attention_of(std::string_view module) {
  constexpr std::string_view kName = ".self_attn.";
  const std::size_t at = module.find(kName);
  return at == std::string_view::npos ? "" : std::string(module.substr(0, at + kName.size() - 1));
}

// ModelOpt's files cover attention with one glob a layer, which readers that fuse q, k and v count on.
std::vector<std::string> modelopt_exclusions(const QuantDescription& d) {
  std::vector<std::string> out;
  std::unordered_set<std::string> seen;
  for (const std::string& module : d.excluded) {
    const std::string attention = attention_of(module);
    const bool whole = !attention.empty() && std::none_of(d.quantised.begin(), d.quantised.end(), [&](const auto& q) {
      return starts_with(q, attention + ".");
    });
    const std::string name = whole ? attention + "*" : module;
    if (seen.insert(name).second) out.push_back(name);
  }
  return out;
}

std::string quant_algo(const ExportTarget& target) {
  if (target.format == ExportFormat::fp8) return "FP8";
  return target.static_inputs ? "NVFP4" : "W4A16_NVFP4";
}

Json producer(const QuantDescription& d) {
  return Json(Json::Object{{"name", "sluice"}, {"version", d.producer_version}});
}

Json::Object modelopt_numbers(const ExportTarget& target) {
  Json::Object out{{"dynamic", false}, {"num_bits", target.format == ExportFormat::fp8 ? 8 : 4}, {"type", "float"}};
  if (target.format == ExportFormat::nvfp4) out.emplace_back("group_size", 16);
  return out;
}

Json modelopt_config(const QuantDescription& d) {
  const Json inputs = d.target.static_inputs ? Json(modelopt_numbers(d.target)) : Json();
  Json::Object group{
      {"input_activations", inputs}, {"weights", modelopt_numbers(d.target)}, {"targets", Json::Array{"Linear"}}};
  return Json(Json::Object{{"config_groups", Json::Object{{"group_0", std::move(group)}}},
                           {"ignore", strings(spelled_exclusions(d))},
                           {"quant_algo", quant_algo(d.target)},
                           {"producer", producer(d)},
                           {"quant_method", "modelopt"}});
}

std::string compressed_format(const ExportTarget& target) {
  if (target.format == ExportFormat::nvfp4) return "nvfp4-pack-quantized";
  return target.format == ExportFormat::mxfp4 ? "mxfp4-pack-quantized" : "float-quantized";
}

Json::Object compressed_args(int bits, std::string_view strategy, Json dynamic) {
  return {{"num_bits", bits},
          {"type", "float"},
          {"symmetric", true},
          {"strategy", Json(strategy)},
          {"dynamic", dynamic},
          {"group_size", Json()},
          {"block_structure", Json()},
          {"actorder", Json()},
          {"observer", dynamic.is_bool() && dynamic.as_bool("") ? Json() : Json("minmax")},
          {"observer_kwargs", Json::Object{}}};
}

void set(Json::Object& object, std::string_view key, Json value) {
  for (auto& [name, old] : object) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  object.emplace_back(key, std::move(value));
}

Json compressed_weights(const ExportTarget& target) {
  switch (target.block_format()) {
    case BlockFormat::nvfp4: {
      Json::Object args = compressed_args(4, "tensor_group", false);
      set(args, "group_size", 16);
      return Json(std::move(args));
    }
    case BlockFormat::mxfp4: {
      Json::Object args = compressed_args(4, "group", false);
      set(args, "group_size", 32);
      set(args, "scale_dtype", "torch.uint8");
      return Json(std::move(args));
    }
    case BlockFormat::fp8_block: {
      Json::Object args = compressed_args(8, "block", false);
      set(args, "block_structure", Json::Array{128, 128});
      return Json(std::move(args));
    }
    case BlockFormat::fp8_row:
      return Json(compressed_args(8, "channel", false));
    default:
      return Json(compressed_args(8, "tensor", false));
  }
}

Json compressed_inputs(const ExportTarget& target) {
  switch (target.block_format()) {
    case BlockFormat::nvfp4: {
      if (!target.static_inputs) return {};
      // "local": the block scales of inputs are computed at run time, their global scale is stored.
      Json::Object args = compressed_args(4, "tensor_group", "local");
      set(args, "group_size", 16);
      return Json(std::move(args));
    }
    case BlockFormat::mxfp4:
      return {};
    case BlockFormat::fp8_block: {
      Json::Object args = compressed_args(8, "group", true);
      set(args, "group_size", 128);
      return Json(std::move(args));
    }
    case BlockFormat::fp8_row:
      return Json(compressed_args(8, "token", true));
    default:
      return Json(compressed_args(8, "tensor", false));
  }
}

Json compressed_config(const QuantDescription& d) {
  const std::string format = compressed_format(d.target);
  Json::Object group{{"targets", Json::Array{"Linear"}},
                     {"weights", compressed_weights(d.target)},
                     {"input_activations", compressed_inputs(d.target)},
                     {"output_activations", Json()},
                     {"format", format}};
  return Json(Json::Object{{"quant_method", "compressed-tensors"},
                           {"format", format},
                           {"quantization_status", "compressed"},
                           {"global_compression_ratio", Json()},
                           {"kv_cache_scheme", Json()},
                           {"ignore", strings(spelled_exclusions(d))},
                           {"config_groups", Json::Object{{"group_0", std::move(group)}}}});
}

Json deepseek_config(const QuantDescription& d) {
  return Json(Json::Object{{"quant_method", "fp8"},
                           {"fmt", "e4m3"},
                           {"activation_scheme", "dynamic"},
                           {"weight_block_size", Json::Array{128, 128}},
                           {"modules_to_not_convert", strings(spelled_exclusions(d))}});
}

Json quantization_config(const QuantDescription& d) {
  switch (d.target.dialect) {
    case ExportDialect::modelopt:
      return modelopt_config(d);
    case ExportDialect::compressed_tensors:
      return compressed_config(d);
    case ExportDialect::deepseek:
      return deepseek_config(d);
    default:
      return Json(Json::Object{{"quant_method", "mxfp4"}, {"modules_to_not_convert", strings(spelled_exclusions(d))}});
  }
}

// A nested text model may carry the old description, too.
Json without_description(const Json& config) {
  Json::Object out;
  for (const auto& [key, value] : config.as_object("config.json")) {
    if (is_old_key(key)) continue;
    out.emplace_back(key, key == "text_config" && value.is_object() ? without_description(value) : value);
  }
  return Json(std::move(out));
}

}  // namespace

std::vector<std::string> spelled_exclusions(const QuantDescription& d) {
  std::vector<std::string> out = d.target.dialect == ExportDialect::modelopt ? modelopt_exclusions(d) : d.excluded;
  if (d.target.dialect == ExportDialect::gpt_oss) out.emplace_back("model.embed_tokens");
  // The output projection of tied embeddings is a linear layer to readers, though no tensor of the file.
  const auto has = [](const std::vector<std::string>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  if (!has(out, "lm_head") && !has(d.quantised, "lm_head")) out.emplace_back("lm_head");
  return out;
}

Json exported_config(const Json& source, const QuantDescription& description) {
  Json plain = without_description(source);
  if (description.target.is_plain()) return plain;
  Json::Object out = plain.as_object("config.json");
  out.emplace_back("quantization_config", quantization_config(description));
  return Json(std::move(out));
}

Json hf_quant_config(const QuantDescription& d) {
  if (d.target.dialect != ExportDialect::modelopt) return {};
  Json::Object quantization{{"quant_algo", quant_algo(d.target)}, {"kv_cache_quant_algo", Json()}};
  if (d.target.format == ExportFormat::nvfp4) quantization.emplace_back("group_size", 16);
  quantization.emplace_back("exclude_modules", strings(spelled_exclusions(d)));
  return Json(Json::Object{{"producer", producer(d)}, {"quantization", std::move(quantization)}});
}

}  // namespace sluice::ckpt
