#include "model/roles.h"

#include <iterator>

namespace sluice::model {

std::string_view role_name(Role role) {
  constexpr std::string_view kNames[] = {
      "embedding",
      "final_norm",
      "output",
      "attention_norm",
      "q",
      "k",
      "v",
      "o",
      "q_bias",
      "k_bias",
      "v_bias",
      "o_bias",
      "q_norm",
      "k_norm",
      "sinks",
      "ffn_norm",
      "router",
      "router_bias",
      "correction_bias",
      "gate",
      "up",
      "down",
      "shared_gate",
      "shared_up",
      "shared_down",
      "shared_expert_gate",
      "q_a",
      "q_a_norm",
      "q_b",
      "kv_a",
      "kv_a_norm",
      "kv_b",
  };
  static_assert(std::size(kNames) == static_cast<std::size_t>(Role::kv_b) + 1);
  return kNames[static_cast<std::size_t>(role)];
}

}  // namespace sluice::model
