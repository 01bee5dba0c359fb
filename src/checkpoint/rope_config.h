// Rotary position parameters of config.json, in one form for every spelling.
//
// Called by the family files of src/model. Reads transformers 4 (rope_theta, rope_scaling with "type" or "rope_type",
// partial_rotary_factor) and 5 (rope_parameters with all of these inside, flat or one object per layer type).
// Pure functions; Error(bad_input) names the field, Error(unsupported) a rope type that nothing here computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/fields.h"

namespace sluice::ckpt {

enum class RopeType : std::uint8_t { plain, linear, dynamic, yarn, llama3 };

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;
  double factor = 1.0;  // context extension; all types but plain
  // Context the model was trained with before extension; the file's max_position_embeddings when it says nothing else.
  std::int64_t original_max_positions = 0;
  double partial_rotary_factor = 1.0;  // share of each head that is rotated

  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> attention_factor;  // absent: derived from factor, mscale and mscale_all_dim
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  bool truncate = true;  // round the correction range to whole dimensions

  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;

  bool operator==(const RopeConfig&) const = default;
};

std::string_view rope_type_name(RopeType type);

// What a family takes for fields that its file leaves out.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
};

// Throws Error(bad_input) where two places of the file contradict each other. `layer_type` picks the object of a nested
// rope_parameters ("full_attention", "sliding_attention"); it is ignored when the parameters are flat.
RopeConfig read_rope(const Fields& config, const RopeDefaults& defaults = {},
                     std::string_view layer_type = "full_attention");

}  // namespace sluice::ckpt
