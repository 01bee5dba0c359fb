// Choosing experts: router logits > (ids, weights). One slow, exact implementation; backends may have faster ones,
// equal to it.
//
// Rules that hold for every method (architecture 4.3): logits, scores and selection are fp32; ties go to the lowest id;
// the routed scaling factor is folded into the weights here and nowhere else; the output never has a NaN weight or a
// duplicate id.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor.h"
#include "moe/ids.h"

namespace sluice {

enum class RoutingMethod : std::uint8_t {
  score_topk,    // scores of all experts, k largest (of score + bias, if there is one); weight = score
  topk_softmax,  // k largest logits, softmax over the chosen ones
  grouped_max,   // group score = max of its experts, others 0 (DeepSeek-V2)
  grouped_top2,  // group score = sum of its two largest biased scores, others -inf (DeepSeek-V3)
  hash,          // ids from a table indexed by the token id; weights = scores of those (DeepSeek-V4)
  top1_sigmoid,  // largest raw logit, weight = sigmoid (Llama-4)
};

enum class Scoring : std::uint8_t { softmax, sigmoid, sqrt_softplus };

struct RoutingSpec {
  RoutingMethod method = RoutingMethod::score_topk;
  Scoring scoring = Scoring::softmax;
  std::int32_t experts = 0;  // routed experts, E_routed
  std::int32_t top_k = 0;    // routed experts a token, without fused shared ones
  std::int32_t groups = 1;
  std::int32_t top_groups = 1;
  bool renormalize = false;                  // divide by the sum over the chosen routed experts
  float renormalize_epsilon = 0.0f;          // added to that sum
  float routed_scaling_factor = 1.0f;        // multiplies routed weights, after renormalisation
  std::int32_t fused_shared = 0;             // appended with ids experts + i and weight exactly 1
  const float* correction_bias = nullptr;    // [experts] fp32; selection only, never part of a weight
  const std::int32_t* hash_table = nullptr;  // [vocab, top_k] for RoutingMethod::hash
  std::int64_t hash_vocab = 0;

  std::int32_t slots() const { return top_k + fused_shared; }            // k
  std::int32_t total_experts() const { return experts + fused_shared; }  // E
};

struct RouteInput {
  ConstTensorView logits;                   // [T, experts] f32
  const std::int32_t* token_ids = nullptr;  // [T], for hash routing
  std::int64_t valid_tokens = -1;           // rows from here on are padding: ids -1, weights 0; -1 = all are valid
};

struct RouteOutput {
  LogicalId* ids = nullptr;  // [T, k]
  float* weights = nullptr;  // [T, k]
};

// Throws Error(usage) naming the field when a spec cannot be routed (k > experts, groups that don't divide, no table
// ...).
void validate(const RoutingSpec& spec);

// Routes rows [first, last) of the input. Thread-safe; allocates nothing beyond a stack of fixed size for E <= 1024,
// else scratch.
void route_rows(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, std::int64_t first,
                std::int64_t last);

std::string_view routing_name(RoutingMethod method);

}  // namespace sluice
