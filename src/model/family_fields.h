// Readings of config.json that many families share. Called by family_*.cc only.
//
// Pure functions; errors name the field.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/name_map.h"
#include "model/config.h"
#include "model/families.h"
#include "model/roles.h"

namespace sluice::model {

// Sizes, norm epsilon and embeddings; layers are left to the family. `norm_epsilon` is the family's own, for files
// without the field. The architecture is the first of the file's that the family serves.
ModelConfig common_config(const ckpt::HfConfig& config, const Family& family, double norm_epsilon = 1e-6);

RopeSpec rope_of(const ckpt::Fields& fields, std::int32_t head_dim, const ckpt::RopeDefaults& defaults = {});

// Heads, their sizes, rope and scale of grouped-query attention; norms, biases and windows are left to the family.
AttentionSpec grouped_attention_of(const ckpt::Fields& fields, std::int64_t hidden,
                                   const ckpt::RopeDefaults& defaults = {});

// The activation of gated experts and gated dense layers by `hidden_act`. Throws Error(unsupported) for others.
ActivationSpec gated_activation_of(const ckpt::Fields& fields);

// num_hidden_layers.
std::int64_t layers_of(const ckpt::Fields& fields);

// num_experts_per_tok of `experts` experts, chosen by softmax scores; renormalised when norm_topk_prob says so.
RoutingSpec softmax_routing_of(const ckpt::Fields& fields, std::int64_t experts);

// What a family takes for fields that its file leaves out.
struct GroupDefaults {
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  double scaling_factor = 1.0;
};

// Sigmoid scores with a correction bias for selection, in n_group groups, scaled (DeepSeek-V3, GLM-4.5).
RoutingSpec sigmoid_routing_of(const ckpt::Fields& fields, std::int64_t experts, const GroupDefaults& defaults = {});

// Throws Error(unsupported) when the field is there and neither null nor false: `missing` is what this
// engine lacks for it.
void refuse_field(const ckpt::Fields& fields, std::string_view field, std::string_view missing);

// Names that decoders saved by transformers have in common: ends, norms, attention, biases and a gated dense FFN.
ckpt::NameMap decoder_names();

// Adds a name for a role. A role may have several: the first of which the checkpoint has a tensor counts.
void add_name(ckpt::NameMap& map, Role role, std::string_view pattern);

// Routed experts as model.layers.{L}.mlp.experts: one tensor an expert and projection, which is what transformers
// saves, or stacked as its modules hold them, which other software saves.
std::vector<ckpt::ExpertNames> mlp_expert_names();

// Names of the norms of query and key heads.
void add_qk_norm_names(ckpt::NameMap& map);

// Names of the shared expert below model.layers.{L}.mlp, which families call shared_expert or shared_experts.
void add_shared_names(ckpt::NameMap& map, std::string_view module);

}  // namespace sluice::model
