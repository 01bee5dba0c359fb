// Readings of config.json that many families share. Called by family_*.cc only.
//
// Pure functions; errors name the field.
#pragma once

#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/name_map.h"
#include "model/config.h"

namespace sluice::model {

// Sizes, norm epsilon and embeddings; layers are left to the family.
ModelConfig common_config(const ckpt::HfConfig& config, std::string_view family);

RopeSpec rope_of(const ckpt::Fields& fields, std::int32_t head_dim);

// The activation of gated experts and gated dense layers by `hidden_act`. Throws Error(unsupported) for others.
ActivationSpec gated_activation_of(const ckpt::Fields& fields);

// Names that decoders saved by transformers have in common: ends, norms, attention, biases and a gated dense FFN.
ckpt::NameMap decoder_names();

}  // namespace sluice::model
