#include "model/rank_part.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "core/rounding.h"
#include "dispatch/dispatcher.h"
#include "model/roles.h"
#include "moe/weight_slices.h"

namespace sluice::model {
namespace {

// Rows of fp8 blocks can be cut inside of a block, but where kernels read a scale for 16 rows at a time.
constexpr std::int64_t kScaledRows = 16;

Recipe stored_as(const ckpt::WeightSource& source, Role role, std::int64_t layer) {
  return source.tensor_recipe(role_name(role), layer);
}

std::int64_t scale_group(Recipe stored) { return stored == Recipe::bf16 ? 1 : cut_group(stored); }

// The fewest of things `width` wide that together are whole groups.
std::int64_t things_of_groups(std::int64_t width, std::int64_t group) { return group / std::gcd(width, group); }

AttentionPart whole_attention(const AttentionSpec& spec, std::string why) {
  return {{0, spec.heads}, {0, spec.kv_heads}, false, std::move(why)};
}

// `unit` heads stay together.
AttentionPart groups_stay_whole(const AttentionSpec& spec, std::int64_t unit, const Piece& piece) {
  const std::string kv = spec.mla ? "" : fmt::format(" with {} key-value heads", spec.kv_heads);
  const char* groups = unit > 1 ? " of whole groups of scales" : "";
  return whole_attention(
      spec, fmt::format("{} query heads{} cannot be cut into {} pieces{}", spec.heads, kv, piece.count, groups));
}

// Each piece has one key-value head: consecutive pieces share it, and its query heads are dealt out among them.
AttentionPart with_repeated_kv(const AttentionSpec& spec, std::int64_t unit, const Piece& piece) {
  const std::int64_t group = spec.heads / spec.kv_heads;
  if (spec.kv_heads > 1 && group % unit != 0) return groups_stay_whole(spec, unit, piece);
  if (ceil_div(group, unit) < ceil_div(piece.count, spec.kv_heads)) return groups_stay_whole(spec, unit, piece);
  std::int32_t kv = 0;
  Share pieces = share_of(piece.count, 1, {kv, spec.kv_heads});
  while (piece.index >= pieces.end) pieces = share_of(piece.count, 1, {++kv, spec.kv_heads});
  const Piece own{static_cast<std::int32_t>(piece.index - pieces.begin), static_cast<std::int32_t>(pieces.count())};
  const Share heads = share_of(group, unit, own);
  return {{kv * group + heads.begin, kv * group + heads.end}, {kv, kv + 1}, true, ""};
}

// Of all pieces; the whole where one would be empty.
std::vector<Share> shares_of(std::int64_t n, std::int64_t group, const Piece& piece) {
  if (ceil_div(n, group) < piece.count) return {{0, n}};
  std::vector<Share> shares;
  for (std::int32_t p = 0; p < piece.count; ++p) shares.push_back(share_of(n, group, {p, piece.count}));
  return shares;
}

std::int64_t largest_group(const ckpt::WeightSource& source, std::int64_t layer, std::initializer_list<Role> roles) {
  std::int64_t group = 1;
  for (const Role role : roles) {
    if (source.has(role_name(role), layer)) group = std::max(group, cut_group(stored_as(source, role, layer)));
  }
  return group;
}

Share inner_share(const LayerSpec& spec, Recipe stored, const RankPlan& plan) {
  if (plan.expert.whole()) return {0, spec.intermediate};
  return cut_share(spec.intermediate, cut_group(stored), plan.expert, "the intermediate size of an expert",
                   "fewer ranks, or a larger --ep, which leaves more of each expert together");
}

}  // namespace

AttentionCuts attention_cuts(const ckpt::WeightSource& source, std::int64_t layer, const AttentionSpec& spec) {
  AttentionCuts cuts;
  const auto add_rows = [&](Role role) {
    if (stored_as(source, role, layer) == Recipe::fp8_block) cuts.rows = kScaledRows;
  };
  if (spec.mla) {
    add_rows(spec.mla->q_lora_rank == 0 ? Role::q : Role::q_b);
  } else {
    for (const Role role : {Role::q, Role::k, Role::v}) add_rows(role);
  }
  cuts.cols = scale_group(stored_as(source, Role::o, layer));
  return cuts;
}

AttentionPart attention_part(const AttentionSpec& spec, const AttentionCuts& cuts, const Piece& piece) {
  if (piece.whole()) return whole_attention(spec, "");
  if (spec.qk_norm == QkNorm::whole_width) {
    return whole_attention(spec, "queries and keys are normalised over all heads together");
  }
  const std::int64_t out = spec.mla ? spec.mla->v_dim : spec.head_dim;
  const std::int64_t unit = std::lcm(things_of_groups(out, cuts.cols), things_of_groups(spec.head_dim, cuts.rows));
  if (spec.mla) {
    if (ceil_div(spec.heads, unit) < piece.count) return groups_stay_whole(spec, unit, piece);
    return {share_of(spec.heads, unit, piece), {0, spec.kv_heads}, true, ""};
  }
  const std::int64_t group = spec.heads / spec.kv_heads;
  if (piece.count > spec.kv_heads) return with_repeated_kv(spec, unit, piece);
  const std::int64_t kv_unit = std::lcm(things_of_groups(group, unit), things_of_groups(spec.head_dim, cuts.rows));
  if (ceil_div(spec.kv_heads, kv_unit) < piece.count) return groups_stay_whole(spec, std::max(unit, kv_unit), piece);
  const Share kv = share_of(spec.kv_heads, kv_unit, piece);
  return {{kv.begin * group, kv.end * group}, kv, true, ""};
}

AttentionSpec spec_of_part(const AttentionSpec& spec, const AttentionPart& part) {
  AttentionSpec own = spec;
  own.heads = static_cast<std::int32_t>(part.heads.count());
  own.kv_heads = static_cast<std::int32_t>(part.kv_heads.count());
  return own;
}

Share dense_part(const ckpt::WeightSource& source, std::int64_t layer, const DenseFfnSpec& spec, const Piece& piece) {
  if (piece.whole()) return {0, spec.intermediate};
  const std::int64_t group = largest_group(source, layer, {Role::gate, Role::up, Role::down});
  return cut_share(spec.intermediate, group, piece, "the intermediate size of a dense FFN",
                   "fewer ranks, or --moe-dense-tp-size 1, which leaves layers without experts whole");
}

Piece shared_piece(const RankPlan& plan) {
  return dispatch_kind(plan.sizes) == DispatchKind::allreduce ? Piece{plan.rank, plan.sizes.tp} : Piece{};
}

Share shared_part(const ckpt::WeightSource& source, std::int64_t layer, const DenseFfnSpec& spec, const Piece& piece) {
  if (piece.whole()) return {0, spec.intermediate};
  const std::int64_t group = largest_group(source, layer, {Role::shared_gate, Role::shared_up, Role::shared_down});
  return share_of(spec.intermediate, group, piece);
}

std::vector<Share> embedding_columns(const ckpt::WeightSource& source, std::int64_t hidden, const Piece& piece) {
  return shares_of(hidden, cut_group(stored_as(source, Role::embedding, ckpt::kOutsideLayers)), piece);
}

// Kernels pad rows to panels: as many as a panel has stay together where every rank gets some then.
std::vector<Share> output_rows(std::int64_t vocab, const Piece& piece) {
  constexpr std::int64_t kPanelRows = 64;
  const bool panels = ceil_div(vocab, kPanelRows) >= piece.count;
  return shares_of(vocab, panels ? kPanelRows : kScaledRows, piece);
}

Share own_share(const std::vector<Share>& shares, const Piece& piece) {
  return shares.size() > 1 ? shares[static_cast<std::size_t>(piece.index)] : shares.front();
}

std::vector<std::string> rank_notes(const ModelConfig& config, const ckpt::WeightSource& source, const RankPlan& plan) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const AttentionSpec& spec = config.layers[i].attention;
    const AttentionPart part = attention_part(spec, attention_cuts(source, layer, spec), plan.attention);
    if (part.whole.empty()) continue;
    std::string note = fmt::format("attention is whole on every rank: {}", part.whole);
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
  }
  return notes;
}

ckpt::ExpertSlice expert_slice(const LayerSpec& spec, Recipe stored, const Placement& placement, const RankPlan& plan) {
  ckpt::ExpertSlice slice;
  if (!plan.expert.whole()) slice.inner = inner_share(spec, stored, plan);
  if (plan.experts.whole() && placement.slots() == placement.experts()) return slice;
  const SlotRange slots = placement.of_rank(plan.experts.index);
  for (std::int32_t s = slots.first; s < slots.first + slots.count; ++s) {
    slice.experts.push_back(placement.expert_of(SlotId{s}));
  }
  return slice;
}

Problem problem_of_rank(const Problem& whole, Recipe stored, const RankPlan& plan) {
  Problem problem = whole;
  problem.layer.intermediate = inner_share(whole.layer, stored, plan).count();
  problem.dispatch = dispatch_kind(plan.sizes);
  problem.parallel = {plan.experts.count, plan.experts.index, plan.expert.count, plan.expert.index};
  return problem;
}

}  // namespace sluice::model
