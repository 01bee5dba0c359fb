#include "checkpoint/config.h"

#include <utility>

namespace sluice::ckpt {
namespace {

// Names under which multimodal checkpoints nest their language model.
Fields language_model_of(const Fields& root) {
  for (const std::string_view name : {"text_config", "language_config", "llm_config"}) {
    if (root.has({name})) return root.nested(name);
  }
  return root;
}

std::optional<DType> dtype_from(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  constexpr std::string_view kPrefix = "torch.";
  std::string_view n = *name;
  if (n.substr(0, kPrefix.size()) == kPrefix) n.remove_prefix(kPrefix.size());
  if (n == "bfloat16") return DType::bf16;
  if (n == "float16" || n == "half") return DType::f16;
  if (n == "float32" || n == "float") return DType::f32;
  return std::nullopt;
}

}  // namespace

HfConfig::HfConfig(Fields root, Fields text)
    : root_(std::move(root)),
      text_(std::move(text)),
      model_type_(text_.get_string({"model_type"}, "")),
      architectures_(root_.get_strings({"architectures"})),
      dtype_(dtype_from(text_.maybe_string({"dtype", "torch_dtype"}))) {}

HfConfig HfConfig::parse(std::string_view text, std::string_view origin) {
  Fields root(parse_config_json(text, origin), std::string(origin));
  Fields language_model = language_model_of(root);
  return {std::move(root), std::move(language_model)};
}

HfConfig HfConfig::load(const std::string& path) {
  Fields root(parse_config_file(path), path);
  Fields language_model = language_model_of(root);
  return {std::move(root), std::move(language_model)};
}

std::optional<Fields> HfConfig::quantization() const { return text_.maybe_object({"quantization_config"}); }

}  // namespace sluice::ckpt
