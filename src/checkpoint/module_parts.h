// Which tensors belong together: a weight, and the scales that lie beside it under names derived from its own.
//
// Built once when a TensorReader opens; dialects look at the parts of a module to tell how it is stored. Holds pointers
// into the Checkpoint, which must outlive it. Immutable, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "checkpoint/checkpoint.h"

namespace sluice::ckpt {

enum class Part : std::uint8_t {
  weight,              // "m.weight", or a name of its own ("m")
  packed,              // "m.weight_packed"
  blocks,              // "m_blocks", "m.blocks"
  scales,              // "m_scales", "m.scales"
  scale,               // "m.weight_scale", "m_weight_scale", "m.scale"
  scale_inv,           // "m.weight_scale_inv", "m_scale_inv"
  scale_2,             // "m.weight_scale_2"
  global_scale,        // "m.weight_global_scale"
  input_scale,         // "m.input_scale"
  input_global_scale,  // "m.input_global_scale"
  pre_quant_scale,     // "m.pre_quant_scale"
  zero_point,          // "m.weight_zero_point"
  weight_shape,        // "m.weight_shape"
};
inline constexpr std::size_t kParts = static_cast<std::size_t>(Part::weight_shape) + 1;

struct ModuleParts {
  std::string_view module;  // "model.layers.0.mlp.experts.3.gate_proj"
  std::array<const TensorEntry*, kParts> tensors{};

  const TensorEntry* operator[](Part part) const { return tensors[static_cast<std::size_t>(part)]; }
  bool has(Part part) const { return (*this)[part] != nullptr; }
  // The tensor with the codes, or nullptr when there are only scales.
  const TensorEntry* codes() const;
};

class ModuleIndex {
 public:
  explicit ModuleIndex(const Checkpoint& checkpoint);

  // The module that a tensor of this name belongs to; a weight goes by the name that it has in an unquantised
  // checkpoint. nullptr when the checkpoint has nothing of the module. Constant time.
  const ModuleParts* find(std::string_view tensor_name) const;

 private:
  std::unordered_map<std::string_view, ModuleParts> modules_;  // keys point into the names of the entries
};

// "m" and the part that a tensor name stands for.
struct PartName {
  std::string_view module;
  Part part = Part::weight;
};
PartName part_name(std::string_view tensor_name);

// Names of scales of a KV cache, which belong to no weight: "...k_proj.k_scale", "...attn.v_scale", "...kv_scale".
bool is_kv_scale(std::string_view tensor_name);

}  // namespace sluice::ckpt
