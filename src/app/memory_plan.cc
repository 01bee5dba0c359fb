#include "app/memory_plan.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "model/rank_part.h"
#include "model/roles.h"

namespace sluice::app {
namespace {

using model::Extent;
using model::Role;

constexpr std::int64_t kKvElementBytes = 2;  // bf16

// Projections that tensor parallelism cuts.
bool is_linear(std::string_view role) {
  for (const Role linear :
       {Role::q, Role::k, Role::v, Role::o, Role::q_bias, Role::k_bias, Role::v_bias, Role::gate, Role::up, Role::down,
        Role::shared_gate, Role::shared_up, Role::shared_down, Role::output, Role::q_b, Role::kv_b}) {
    if (role == model::role_name(linear)) return true;
  }
  return false;
}

std::int64_t kv_bytes(const model::AttentionSpec& a) {
  return (a.mla ? a.mla->latent_width() : 2 * a.kv_width()) * kKvElementBytes;
}

std::int64_t blocks_of(const Share& part, std::int64_t block) {
  return part.count() == 0 ? 0 : (part.end - 1) / block - part.begin / block + 1;
}

// Codes and block scales of a part of a matrix.
std::int64_t part_bytes(const QuantTensor& w, const Share& rows, const Share& cols) {
  const std::int64_t codes = rows.count() * dtype_bytes(w.codes.dtype, cols.count());
  const BlockScaleView& s = w.block_scale;
  if (s.data == nullptr) return codes;
  return codes + dtype_bytes(s.dtype, blocks_of(rows, s.block_rows) * blocks_of(cols, s.block_cols));
}

// Asks for every weight once, and adds up the parts of rank after rank.
class Planner {
 public:
  Planner(const model::ModelConfig& config, ckpt::WeightSource& source) : config_(config), source_(source) {}

  MemoryPlan plan(const RankPlan& rank) {
    plan_ = {};
    rank_ = &rank;
    layer_ = ckpt::kOutsideLayers;
    const Piece& piece = rank.attention;
    const std::int64_t vocab = config_.vocab, hidden = config_.hidden;
    const Extent columns{hidden, model::own_share(model::embedding_columns(source_, hidden, piece), piece)};
    const Extent rows{vocab, model::own_share(model::output_rows(vocab, piece), piece)};
    add(Role::embedding, vocab, columns);
    add(Role::final_norm, 1, hidden);
    add(config_.tied_embeddings ? Role::embedding : Role::output, rows, hidden);
    for (const model::BlockSpec& block : config_.layers) {
      ++layer_;
      add_attention(block.attention);
      add(Role::ffn_norm, 1, config_.hidden);
      if (block.moe() != nullptr) {
        add_moe(block);
      } else {
        const model::DenseFfnSpec& ffn = *block.dense();
        const Share inner = model::dense_part(source_, layer_, ffn, rank.dense);
        add_ffn({Role::gate, Role::up, Role::down}, ffn, {ffn.intermediate, inner});
      }
    }
    return plan_;
  }

 private:
  struct FfnRoles {
    Role gate, up, down;
  };

  void add(Role role, const Extent& rows, const Extent& cols) {
    const std::string_view name = model::role_name(role);
    const auto [known, is_new] = asked_.try_emplace({role, layer_});
    if (is_new) known->second = source_.tensor(name, layer_, rows.all, cols.all);
    (is_linear(name) ? plan_.linear_bytes : plan_.replicated_bytes) += part_bytes(known->second, rows.part, cols.part);
  }

  void add_attention(const model::AttentionSpec& a) {
    const model::AttentionPart part =
        model::attention_part(a, model::attention_cuts(source_, layer_, a), rank_->attention);
    const Extent queries = Extent::of(a.heads, part.heads, a.head_dim), hidden = config_.hidden;
    add(Role::attention_norm, 1, hidden);
    add(Role::o, hidden, Extent::of(a.heads, part.heads, a.output_width() / a.heads));
    if (a.mla) {
      add_latent(a, part, queries);
    } else {
      add_qkv(a, queries, Extent::of(a.kv_heads, part.kv_heads, a.head_dim));
    }
    if (a.output_bias && part.heads.begin == 0) add(Role::o_bias, 1, hidden);
    if (a.sinks) add(Role::sinks, 1, {a.heads, part.heads});
    plan_.kv_bytes_per_token += kv_bytes(model::spec_of_part(a, part));
  }

  void add_latent(const model::AttentionSpec& a, const model::AttentionPart& part, const Extent& queries) {
    const model::MlaSpec& m = *a.mla;
    if (m.q_lora_rank == 0) {
      add(Role::q, queries, config_.hidden);
    } else {
      add(Role::q_a, m.q_lora_rank, config_.hidden);
      add(Role::q_a_norm, 1, m.q_lora_rank);
      add(Role::q_b, queries, m.q_lora_rank);
    }
    add(Role::kv_a, m.latent_width(), config_.hidden);
    add(Role::kv_a_norm, 1, m.kv_lora_rank);
    add(Role::kv_b, Extent::of(a.heads, part.heads, m.nope_dim + m.v_dim), m.kv_lora_rank);
  }

  void add_qkv(const model::AttentionSpec& a, const Extent& queries, const Extent& keys) {
    add(Role::q, queries, config_.hidden);
    add(Role::k, keys, config_.hidden);
    add(Role::v, keys, config_.hidden);
    if (a.qkv_bias) {
      add(Role::q_bias, 1, queries);
      add(Role::k_bias, 1, keys);
      add(Role::v_bias, 1, keys);
    }
    if (a.qk_norm == model::QkNorm::none) return;
    const bool whole = a.qk_norm == model::QkNorm::whole_width;
    add(Role::q_norm, 1, whole ? queries : Extent(a.head_dim));
    add(Role::k_norm, 1, whole ? keys : Extent(a.head_dim));
  }

  void add_ffn(const FfnRoles& roles, const model::DenseFfnSpec& ffn, const Extent& inner) {
    if (inner.part.count() == 0) return;
    if (is_gated(ffn.activation.kind)) add(roles.gate, inner, config_.hidden);
    add(roles.up, inner, config_.hidden);
    add(roles.down, config_.hidden, inner);
  }

  void add_moe(const model::BlockSpec& block) {
    const LayerSpec& spec = *block.moe();
    add(Role::router, spec.routing.experts, config_.hidden);
    if (block.router_bias) add(Role::router_bias, 1, spec.routing.experts);
    if (block.correction_bias) add(Role::correction_bias, 1, spec.routing.experts);
    if (block.shared) {
      const model::DenseFfnSpec& ffn = block.shared->ffn;
      const Share inner = model::shared_part(source_, layer_, ffn, model::shared_piece(*rank_));
      add_ffn({Role::shared_gate, Role::shared_up, Role::shared_down}, ffn, {ffn.intermediate, inner});
      if (block.shared->output_gate && inner.count() > 0) add(Role::shared_expert_gate, 1, config_.hidden);
    }
    add_experts(spec);
  }

  void add_experts(const LayerSpec& spec) {
    const auto [known, is_new] = experts_.try_emplace(layer_);
    if (is_new) known->second = source_.experts(layer_, spec, {{LogicalId{0}}, {}});
    const ExpertWeights& one = known->second;
    const Placement placement = Placement::contiguous(spec.routing.total_experts(), rank_->experts.count);
    const ckpt::ExpertSlice slice = model::expert_slice(spec, source_.expert_recipe(layer_), placement, *rank_);
    const Share inner = slice.inner_of(spec.intermediate), width{0, spec.width()};
    std::int64_t bytes = part_bytes(one.up.front(), inner, width) + part_bytes(one.down.front(), width, inner);
    if (!one.gate.empty()) bytes += part_bytes(one.gate.front(), inner, width);
    for (const auto* list : {&one.gate_bias, &one.up_bias}) {
      if (!list->empty()) bytes += dtype_bytes(list->front().dtype, inner.count());
    }
    if (!one.down_bias.empty()) bytes += dtype_bytes(one.down_bias.front().dtype, spec.width());
    plan_.expert_bytes += bytes * placement.of_rank(rank_->experts.index).count;
  }

  const model::ModelConfig& config_;
  ckpt::WeightSource& source_;
  std::map<std::pair<Role, std::int64_t>, QuantTensor> asked_;
  std::map<std::int64_t, ExpertWeights> experts_;  // expert 0 of each layer
  const RankPlan* rank_ = nullptr;
  std::int64_t layer_ = 0;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const model::ModelConfig& config, const std::vector<ckpt::FormatUse>& formats) {
  MemoryPlan plan;
  for (const ckpt::FormatUse& use : formats) {
    const auto bytes = static_cast<std::int64_t>(use.bytes);
    if (use.role == "experts") {
      plan.expert_bytes += bytes;
    } else {
      (is_linear(use.role) ? plan.linear_bytes : plan.replicated_bytes) += bytes;
    }
  }
  for (const model::BlockSpec& block : config.layers) plan.kv_bytes_per_token += kv_bytes(block.attention);
  return plan;
}

std::vector<MemoryPlan> plan_ranks(const model::ModelConfig& config, ckpt::WeightSource& source,
                                   const ParallelSizes& sizes) {
  Planner planner(config, source);
  std::vector<MemoryPlan> plans;
  for (std::int32_t r = 0; r < sizes.tp; ++r) plans.push_back(planner.plan(plan_rank(sizes, r)));
  return plans;
}

const MemoryPlan& largest(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(), [](const MemoryPlan& a, const MemoryPlan& b) {
    return a.weight_bytes() < b.weight_bytes();
  });
}

}  // namespace sluice::app
