// generation_config.json: where answers end and how tokens are chosen unless the user says otherwise.
//
// Plain data, read once at load time by Checkpoint. Absent fields stay absent: defaults belong to the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/fields.h"

namespace sluice::ckpt {

struct GenerationConfig {
  std::vector<std::int64_t> eos_token_ids;  // any of them ends an answer; may be empty
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::string> stop_strings;

  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  // 0 = all tokens
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_length;      // tokens, prompt included
  std::optional<std::int64_t> max_new_tokens;  // tokens

  bool operator==(const GenerationConfig&) const = default;
};

// `generation` is the file, or nothing when the checkpoint has none. Token ids that it leaves out are taken from
// `config` (config.json). Error(bad_input) names file and field.
GenerationConfig read_generation(const std::optional<Fields>& generation, const Fields& config);

}  // namespace sluice::ckpt
