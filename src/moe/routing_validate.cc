#include <cmath>
#include <string>

#include "core/error.h"
#include "moe/routing.h"

namespace sluice {
namespace {

void require(bool ok, const std::string& field, const std::string& value, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "routing: " + field + " is " + value, expected);
}

void require_int(bool ok, const std::string& field, std::int64_t value, const std::string& expected) {
  require(ok, field, std::to_string(value), expected);
}

void check_sizes(const RoutingSpec& spec) {
  require_int(spec.experts >= 1, "experts", spec.experts, "at least 1");
  require_int(spec.top_k >= 1 && spec.top_k <= spec.experts, "top_k", spec.top_k,
              "1 to experts (" + std::to_string(spec.experts) + ")");
  require_int(spec.fused_shared >= 0, "fused_shared", spec.fused_shared, "0 or more");
  const bool top1 = spec.method == RoutingMethod::top1_sigmoid;
  require_int(!top1 || spec.top_k == 1, "top_k", spec.top_k, "1 for top1-sigmoid");
}

void check_groups(const RoutingSpec& spec) {
  const bool top2 = spec.method == RoutingMethod::grouped_top2;
  if (!top2 && spec.method != RoutingMethod::grouped_max) {
    require_int(spec.groups == 1, "groups", spec.groups, "1 for " + std::string(routing_name(spec.method)));
    require_int(spec.top_groups == 1, "top_groups", spec.top_groups, "1 for " + std::string(routing_name(spec.method)));
    return;
  }
  require_int(spec.groups >= 1 && spec.experts % spec.groups == 0, "groups", spec.groups,
              "a divisor of experts (" + std::to_string(spec.experts) + ")");
  require_int(spec.top_groups >= 1 && spec.top_groups <= spec.groups, "top_groups", spec.top_groups,
              "1 to groups (" + std::to_string(spec.groups) + ")");
  const std::int32_t size = spec.experts / spec.groups;
  const bool sums_pairs = top2 && spec.top_groups < spec.groups;
  require_int(!sums_pairs || size >= 2, "groups", spec.groups, "groups of at least 2 experts for grouped-top2");
  const std::int64_t reachable = static_cast<std::int64_t>(size) * spec.top_groups;
  require_int(spec.top_k <= reachable, "top_k", spec.top_k,
              "at most the " + std::to_string(reachable) + " experts of top_groups groups");
}

void check_numbers(const RoutingSpec& spec) {
  require(std::isfinite(spec.renormalize_epsilon) && spec.renormalize_epsilon >= 0.0f, "renormalize_epsilon",
          std::to_string(spec.renormalize_epsilon), "finite and not negative");
  require(std::isfinite(spec.routed_scaling_factor), "routed_scaling_factor",
          std::to_string(spec.routed_scaling_factor), "finite");
  const bool biased = spec.method == RoutingMethod::score_topk || spec.method == RoutingMethod::grouped_top2;
  require(biased || spec.correction_bias == nullptr, "correction_bias", "set",
          "none for " + std::string(routing_name(spec.method)) + ", which would ignore it");
}

void check_table_row(const RoutingSpec& spec, std::int64_t token) {
  const std::int32_t* row = spec.hash_table + token * spec.top_k;
  const std::string field = "hash_table of token " + std::to_string(token);
  for (std::int32_t s = 0; s < spec.top_k; ++s) {
    require_int(row[s] >= 0 && row[s] < spec.experts, field, row[s], "ids of routed experts");
    for (std::int32_t other = 0; other < s; ++other) {
      require(row[other] != row[s], field, std::to_string(row[s]) + " twice", "distinct ids");
    }
  }
}

void check_table(const RoutingSpec& spec) {
  if (spec.method != RoutingMethod::hash) return;
  require(spec.hash_table != nullptr, "hash_table", "missing", "[vocab, top_k] ids for hash routing");
  require_int(spec.hash_vocab >= 1, "hash_vocab", spec.hash_vocab, "at least 1");
  for (std::int64_t token = 0; token < spec.hash_vocab; ++token) check_table_row(spec, token);
}

}  // namespace

void validate(const RoutingSpec& spec) {
  check_sizes(spec);
  check_groups(spec);
  check_numbers(spec);
  check_table(spec);
}

std::string_view routing_name(RoutingMethod method) {
  switch (method) {
    case RoutingMethod::score_topk:
      return "score-topk";
    case RoutingMethod::topk_softmax:
      return "topk-softmax";
    case RoutingMethod::grouped_max:
      return "grouped-max";
    case RoutingMethod::grouped_top2:
      return "grouped-top2";
    case RoutingMethod::hash:
      return "hash";
    case RoutingMethod::top1_sigmoid:
      return "top1-sigmoid";
  }
  return "unknown";
}

}  // namespace sluice
