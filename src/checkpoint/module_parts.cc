#include "checkpoint/module_parts.h"

#include <utility>

namespace sluice::ckpt {
namespace {

struct Suffix {
  std::string_view text;
  Part part;
  bool after_underscore;  // also used after "_", as stacked experts do
};

// A longer one comes before those that end it.
constexpr Suffix kSuffixes[] = {
    {"weight", Part::weight, false},
    {"weight_packed", Part::packed, false},
    {"blocks", Part::blocks, true},
    {"scales", Part::scales, true},
    {"weight_scale_inv", Part::scale_inv, true},
    {"scale_inv", Part::scale_inv, true},
    {"weight_scale_2", Part::scale_2, true},
    {"weight_global_scale", Part::global_scale, true},
    {"input_global_scale", Part::input_global_scale, true},
    {"input_scale", Part::input_scale, true},
    {"pre_quant_scale", Part::pre_quant_scale, true},
    {"weight_scale", Part::scale, true},
    {"scale", Part::scale, false},
    {"weight_zero_point", Part::zero_point, false},
    {"weight_shape", Part::weight_shape, false},
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Some families call the weight of a norm "scale".
void adopt_lone_scale(ModuleParts& parts) {
  const TensorEntry*& scale = parts.tensors[static_cast<std::size_t>(Part::scale)];
  if (scale == nullptr || parts.codes() != nullptr || ends_with(scale->name, "weight_scale")) return;
  parts.tensors[static_cast<std::size_t>(Part::weight)] = std::exchange(scale, nullptr);
}

}  // namespace

const TensorEntry* ModuleParts::codes() const {
  for (const Part part : {Part::weight, Part::packed, Part::blocks}) {
    if (has(part)) return (*this)[part];
  }
  return nullptr;
}

PartName part_name(std::string_view name) {
  for (const Suffix& suffix : kSuffixes) {
    if (name.size() <= suffix.text.size() + 1 || !ends_with(name, suffix.text)) continue;
    const std::size_t separator = name.size() - suffix.text.size() - 1;
    if (name[separator] == '.' || (suffix.after_underscore && name[separator] == '_')) {
      return {name.substr(0, separator), suffix.part};
    }
  }
  return {name, Part::weight};
}

bool is_kv_scale(std::string_view name) {
  const auto is_one = [name](std::string_view end) { return ends_with(name, end); };
  return is_one(".k_scale") || is_one(".v_scale") || is_one(".kv_scale") || is_one(".q_scale") ||
         is_one(".prob_scale") || is_one("k_proj.output_scale") || is_one("v_proj.output_scale");
}

ModuleIndex::ModuleIndex(const Checkpoint& checkpoint) {
  modules_.reserve(checkpoint.tensors().size() / 2);
  for (const TensorEntry* tensor : checkpoint.tensors()) {
    if (is_kv_scale(tensor->name)) continue;
    const PartName name = part_name(tensor->name);
    ModuleParts& parts = modules_[name.module];
    parts.module = name.module;
    const TensorEntry*& slot = parts.tensors[static_cast<std::size_t>(name.part)];
    // "m" and "m.weight" in one file: the second stays unused, and is reported as such.
    if (slot == nullptr) slot = tensor;
  }
  for (auto& [name, parts] : modules_) adopt_lone_scale(parts);
}

const ModuleParts* ModuleIndex::find(std::string_view tensor_name) const {
  const auto at = modules_.find(part_name(tensor_name).module);
  return at == modules_.end() ? nullptr : &at->second;
}

}  // namespace sluice::ckpt
