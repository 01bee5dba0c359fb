// Where the tensors of a model family are in a checkpoint: plain data that a family file of src/model fills.
//
// Read by a WeightSource (scheme.h), which turns roles into tensors. Patterns hold "{L}" for the layer and "{E}" for
// the expert. They name the tensors of the unquantised checkpoint of the family, for example
// "model.layers.{L}.mlp.experts.{E}.gate_proj.weight"; a quantised scheme derives its own names from them (".weight"
// replaced or "_scale" appended). No behaviour here beyond text replacement; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::ckpt {

// How the experts of one layer lie in the file.
struct ExpertNames {
  enum class Files : std::uint8_t {
    per_expert,  // a 2-D tensor for each expert; patterns contain "{E}"
    stacked,     // one 3-D tensor for all experts, experts first
  };
  enum class GateUp : std::uint8_t {
    separate,      // `gate` and `up` (only `up` for experts without a gate)
    gate_then_up,  // `gate_up`: I gate outputs, then I up outputs
    up_then_gate,
    interleaved,  // `gate_up`: gate 0, up 0, gate 1, up 1, ...
  };

  Files files = Files::per_expert;
  GateUp gate_up_order = GateUp::separate;
  bool transposed = false;  // stored [inputs, outputs] instead of [outputs, inputs]

  std::string gate;     // [I, H]
  std::string up;       // [I, H]
  std::string gate_up;  // [2I, H]
  std::string down;     // [H, I]
  // Biases, in the same arrangement; read only for layers that have biases. Outputs are the last dimension.
  std::string gate_bias, up_bias, gate_up_bias, down_bias;
};

struct NameMap {
  // Role > pattern, for everything but routed experts. The roles are those of model/roles.h, by role_name. A role may
  // have several patterns: the first that the checkpoint has a tensor for counts.
  std::vector<std::pair<std::string, std::string>> tensors;
  // Arrangements of the experts, in order of preference: each layer uses the first that it has tensors of.
  std::vector<ExpertNames> experts;
  // Patterns of tensors that a checkpoint may hold and this engine has no use for; "*" stands for any text.
  std::vector<std::string> ignored;

  // The first pattern of a role, empty when the map has none.
  std::string_view find(std::string_view role) const;
};

// The pattern with its placeholders replaced.
std::string expand(std::string_view pattern, std::int64_t layer, std::int64_t expert = 0);

// Whether a name fits a pattern: "{L}" and "{E}" stand for digits, "*" for any text.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace sluice::ckpt
