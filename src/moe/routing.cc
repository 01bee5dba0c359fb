#include "moe/routing.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "moe/routing_score.h"

namespace sluice {
namespace {

// Memory for one row at a time. There are at most as many groups as experts.
struct Scratch {
  float* logits;         // [experts] clean
  float* scores;         // [experts]
  float* keys;           // [experts] what selection compares
  float* group_scores;   // [groups]
  LogicalId* group_ids;  // [groups]
  bool* keep;            // [groups]
};

constexpr std::int32_t kStackExperts = 1024;

template <std::size_t N>
struct StackScratch {
  std::array<float, 4 * N> floats;
  std::array<LogicalId, N> ids;
  std::array<bool, N> flags;
};

Scratch slice(float* floats, LogicalId* ids, bool* flags, std::int64_t experts) {
  return {floats, floats + experts, floats + 2 * experts, floats + 3 * experts, ids, flags};
}

bool is_grouped(RoutingMethod method) {
  return method == RoutingMethod::grouped_max || method == RoutingMethod::grouped_top2;
}

// Every scoring rises with the logit. So where neither a bias nor a sum of scores takes part, the logits themselves are
// compared, and the choice does not depend on how exp rounds or saturates.
const float* selection_keys(const RoutingSpec& spec, const Scratch& scratch) {
  const bool by_score = spec.correction_bias != nullptr || spec.method == RoutingMethod::grouped_top2;
  if (!by_score) return scratch.logits;
  for (std::int32_t e = 0; e < spec.experts; ++e) {
    const float bias = spec.correction_bias != nullptr ? spec.correction_bias[e] : 0.0f;
    scratch.keys[e] = scratch.scores[e] + bias;
  }
  return scratch.keys;
}

float sum_of_two_largest(const float* keys, std::int32_t count) {
  std::array<LogicalId, 2> ids;
  largest(keys, count, {}, 2, ids.data());
  return keys[raw(ids[0])] + keys[raw(ids[1])];
}

float largest_key(const float* keys, std::int32_t count) {
  LogicalId id;
  largest(keys, count, {}, 1, &id);
  return keys[raw(id)];
}

// Marks the top_groups groups with the largest group score; equal ones by ascending group.
CandidateGroups choose_groups(const RoutingSpec& spec, const float* keys, const Scratch& scratch) {
  if (!is_grouped(spec.method) || spec.groups == spec.top_groups) return {};
  const std::int32_t size = spec.experts / spec.groups;
  const bool top2 = spec.method == RoutingMethod::grouped_top2;
  for (std::int32_t g = 0; g < spec.groups; ++g) {
    const float* group = keys + static_cast<std::int64_t>(g) * size;
    scratch.group_scores[g] = top2 ? sum_of_two_largest(group, size) : largest_key(group, size);
    scratch.keep[g] = false;
  }
  largest(scratch.group_scores, spec.groups, {}, spec.top_groups, scratch.group_ids);
  for (std::int32_t i = 0; i < spec.top_groups; ++i) scratch.keep[raw(scratch.group_ids[i])] = true;
  return {scratch.keep, size};
}

void ids_from_table(const RoutingSpec& spec, std::int32_t token, LogicalId* ids) {
  if (token < 0 || token >= spec.hash_vocab) {
    fail(ErrorCode::bad_input, "hash routing has no entry for token id " + std::to_string(token),
         "0 to " + std::to_string(spec.hash_vocab - 1));
  }
  const std::int32_t* row = spec.hash_table + static_cast<std::int64_t>(token) * spec.top_k;
  for (std::int32_t s = 0; s < spec.top_k; ++s) ids[s] = LogicalId{row[s]};
}

// Softmax over the chosen logits, which are in descending order: exp(x - x_0), divided by their sum in slot order.
void softmax_of_chosen(const float* logits, std::int32_t k, const LogicalId* ids, float* weights) {
  float sum = 0.0f;
  for (std::int32_t s = 0; s < k; ++s) {
    weights[s] = std::exp(logits[raw(ids[s])] - logits[raw(ids[0])]);
    sum += weights[s];
  }
  for (std::int32_t s = 0; s < k; ++s) weights[s] /= sum;
}

// (w / (sum of w in slot order + epsilon)) * factor. Weights that are all 0 stay 0.
void renormalize_and_scale(const RoutingSpec& spec, float* weights) {
  float divisor = 1.0f;
  if (spec.renormalize) {
    float sum = 0.0f;
    for (std::int32_t s = 0; s < spec.top_k; ++s) sum += weights[s];
    sum += spec.renormalize_epsilon;
    divisor = sum > 0.0f ? sum : 1.0f;
  }
  for (std::int32_t s = 0; s < spec.top_k; ++s) weights[s] = weights[s] / divisor * spec.routed_scaling_factor;
}

void append_shared(const RoutingSpec& spec, LogicalId* ids, float* weights) {
  for (std::int32_t i = 0; i < spec.fused_shared; ++i) {
    ids[spec.top_k + i] = LogicalId{spec.experts + i};
    weights[spec.top_k + i] = 1.0f;
  }
}

void route_row(const RoutingSpec& spec, const float* logits, const std::int32_t* token, const Scratch& scratch,
               LogicalId* ids, float* weights) {
  clean_logits(logits, spec.experts, scratch.logits);
  if (spec.method == RoutingMethod::topk_softmax) {
    largest(scratch.logits, spec.experts, {}, spec.top_k, ids);
    softmax_of_chosen(scratch.logits, spec.top_k, ids, weights);
  } else {
    const Scoring scoring = spec.method == RoutingMethod::top1_sigmoid ? Scoring::sigmoid : spec.scoring;
    score(scoring, scratch.logits, spec.experts, scratch.scores);
    if (spec.method == RoutingMethod::hash) {
      ids_from_table(spec, *token, ids);
    } else {
      const float* keys = selection_keys(spec, scratch);
      largest(keys, spec.experts, choose_groups(spec, keys, scratch), spec.top_k, ids);
    }
    for (std::int32_t s = 0; s < spec.top_k; ++s) weights[s] = scratch.scores[raw(ids[s])];
  }
  renormalize_and_scale(spec, weights);
  append_shared(spec, ids, weights);
}

void pad_row(std::int32_t slots, LogicalId* ids, float* weights) {
  for (std::int32_t s = 0; s < slots; ++s) {
    ids[s] = LogicalId{-1};
    weights[s] = 0.0f;
  }
}

void check_input(const RoutingSpec& spec, const RouteInput& input) {
  if (input.logits.dtype != DType::f32 || input.logits.cols != spec.experts) {
    fail(ErrorCode::usage,
         "router logits are " + std::string(dtype_name(input.logits.dtype)) + " with " +
             std::to_string(input.logits.cols) + " columns",
         "f32 with " + std::to_string(spec.experts) + " columns");
  }
  if (spec.method == RoutingMethod::hash && input.token_ids == nullptr) {
    fail(ErrorCode::usage, "hash routing was called without token ids", "RouteInput::token_ids");
  }
}

void route_with(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, std::int64_t first,
                std::int64_t last, const Scratch& scratch) {
  for (std::int64_t t = first; t < last; ++t) {
    LogicalId* ids = output.ids + t * spec.slots();
    float* weights = output.weights + t * spec.slots();
    if (input.valid_tokens >= 0 && t >= input.valid_tokens) {
      pad_row(spec.slots(), ids, weights);
    } else {
      const std::int32_t* token = input.token_ids != nullptr ? input.token_ids + t : nullptr;
      route_row(spec, input.logits.row<float>(t), token, scratch, ids, weights);
    }
  }
}

}  // namespace

void route_rows(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, std::int64_t first,
                std::int64_t last) {
  if (first >= last) return;
  check_input(spec, input);
  const auto experts = static_cast<std::size_t>(spec.experts);
  if (spec.experts <= kStackExperts) {
    StackScratch<kStackExperts> s;
    route_with(spec, input, output, first, last, slice(s.floats.data(), s.ids.data(), s.flags.data(), spec.experts));
    return;
  }
  std::vector<float> floats(4 * experts);
  std::vector<LogicalId> ids(experts);
  const std::unique_ptr<bool[]> flags(new bool[experts]);
  route_with(spec, input, output, first, last, slice(floats.data(), ids.data(), flags.get(), spec.experts));
}

}  // namespace sluice
