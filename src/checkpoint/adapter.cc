#include "checkpoint/adapter.h"

#include <algorithm>
#include <array>

#include "checkpoint/fields.h"
#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors";

// An adapter changes what its modules compute; leaving it out would be a wrong answer without a word.
[[noreturn]] void refuse(const std::string& folder, const std::vector<std::string>& modules) {
  fail(
      ErrorCode::unsupported,
      folder + ": holds a LoRA adapter for " + (modules.empty() ? "modules that it does not name" : first_few(modules)),
      "a checkpoint without adapters", "merge the adapter into the weights (peft: merge_and_unload)");
}

// "layers.0.self_attn.q_proj" of "base_model.model.layers.0.self_attn.q_proj.lora_A.weight"; empty for other tensors.
std::string adapted_module(std::string_view name) {
  constexpr std::array<std::string_view, 6> kParts = {
      ".lora_A", ".lora_B", ".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector", ".lora_bias"};
  for (const std::string_view part : kParts) {
    const std::size_t at = name.find(part);
    if (at == std::string_view::npos || (at + part.size() < name.size() && name[at + part.size()] != '.')) continue;
    constexpr std::string_view kPrefix = "base_model.model.";
    const std::size_t begin = name.substr(0, kPrefix.size()) == kPrefix ? kPrefix.size() : 0;
    return std::string(name.substr(begin, at - begin));
  }
  return "";
}

void add_module(std::vector<std::string>& modules, std::string_view tensor) {
  std::string module = adapted_module(tensor);
  if (module.empty() || std::find(modules.begin(), modules.end(), module) != modules.end()) return;
  modules.push_back(std::move(module));
}

std::vector<std::string> configured_modules(const std::string& path) {
  const Fields config(parse_config_file(path), path);
  std::vector<std::string> modules;
  for (const std::string_view key : {"target_modules", "target_parameters", "modules_to_save"}) {
    const std::vector<std::string> names = config.get_strings({key});
    modules.insert(modules.end(), names.begin(), names.end());
  }
  return modules;
}

}  // namespace

std::vector<std::string> adapter_modules(const std::string& folder) {
  std::vector<std::string> modules;
  const std::string config = join_path(folder, kConfig), weights = join_path(folder, kWeights);
  if (file_exists(config)) modules = configured_modules(config);
  if (!modules.empty() || !file_exists(weights)) return modules;
  const SafetensorsFile file(weights);
  for (const TensorEntry& tensor : file.tensors()) add_module(modules, tensor.name);
  return modules;
}

void refuse_adapter(const std::string& folder) {
  for (const std::string_view file : {kConfig, kWeights}) {
    if (!file_exists(join_path(folder, file))) continue;
    refuse(folder, adapter_modules(folder));
  }
}

void refuse_adapter_tensors(const std::string& folder, const std::vector<const TensorEntry*>& tensors) {
  std::vector<std::string> modules;
  for (const TensorEntry* tensor : tensors) add_module(modules, tensor->name);
  if (!modules.empty()) refuse(folder, modules);
}

}  // namespace sluice::ckpt
