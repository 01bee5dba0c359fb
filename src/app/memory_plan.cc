#include "app/memory_plan.h"

#include <algorithm>
#include <string_view>

#include "core/rounding.h"
#include "model/roles.h"

namespace sluice::app {
namespace {

using model::Role;

constexpr std::int64_t kKvElementBytes = 2;  // bf16

// Projections that tensor parallelism cuts.
bool is_cut(std::string_view role) {
  for (const Role cut :
       {Role::q, Role::k, Role::v, Role::o, Role::q_bias, Role::k_bias, Role::v_bias, Role::gate, Role::up, Role::down,
        Role::shared_gate, Role::shared_up, Role::shared_down, Role::output, Role::q_b, Role::kv_b}) {
    if (role == model::role_name(cut)) return true;
  }
  return false;
}

std::int64_t most_experts(const model::ModelConfig& config) {
  std::int64_t experts = 1;
  for (const model::BlockSpec& block : config.layers) {
    if (block.moe() != nullptr) experts = std::max<std::int64_t>(experts, block.moe()->routing.experts);
  }
  return experts;
}

// Heads are cut as far as they go; then each rank repeats one. The latent of MLA is one for all heads.
std::int64_t kv_columns(const model::AttentionSpec& a, std::int64_t tp) {
  if (a.mla) return a.mla->latent_width();
  return 2 * ceil_div(a.kv_heads, tp) * a.head_dim;
}

}  // namespace

MemoryPlan plan_memory(const model::ModelConfig& config, const std::vector<ckpt::FormatUse>& formats,
                       const Split& split) {
  MemoryPlan plan;
  const std::int64_t experts = most_experts(config);
  for (const ckpt::FormatUse& use : formats) {
    const auto bytes = static_cast<std::int64_t>(use.bytes);
    if (use.role == "experts") {
      plan.expert_bytes +=
          static_cast<std::int64_t>(static_cast<double>(bytes) / static_cast<double>(experts * split.pieces()) *
                                    static_cast<double>(ceil_div(experts, split.ep)));
    } else if (is_cut(use.role)) {
      plan.linear_bytes += ceil_div(bytes, split.tp);
    } else {
      plan.replicated_bytes += bytes;
    }
  }
  for (const model::BlockSpec& block : config.layers) {
    plan.kv_bytes_per_token += kv_columns(block.attention, split.tp) * kKvElementBytes;
  }
  return plan;
}

}  // namespace sluice::app
