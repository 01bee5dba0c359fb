// What the configuration files of a checkpoint say of its quantisation, in one form for all vendors.
//
// Read from `quantization_config` of config.json and from hf_quant_config.json; where both speak, config.json counts
// and the other fills what it leaves open. What a weight *is* is decided by its tensors; this says which conventions
// hold for them, and a description that contradicts the tensors is an error (dialect.cc). Immutable, thread-safe.
// Throws Error(bad_input) or Error(unsupported) naming file and field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fields.h"
#include "checkpoint/module_set.h"
#include "numerics/block_format.h"

namespace sluice::ckpt {

enum class QuantMethod : std::uint8_t { none, modelopt, compressed_tensors, fp8, mxfp4 };
std::string_view quant_method_name(QuantMethod method);

// Where the scale of a layer's input comes from.
enum class InputScaling : std::uint8_t {
  unknown,  // not said
  none,     // weight-only: the input is not quantised
  dynamic,  // found at run time
  fixed,    // in the file
};

// How some of the modules are quantised.
struct QuantRule {
  ModuleSet targets;
  bool everything = false;            // targets name a class of modules ("Linear"), or nothing
  std::optional<BlockFormat> format;  // nothing = not said
  InputScaling inputs = InputScaling::unknown;
  std::int64_t block_rows = 0;  // 0 = not said
  std::int64_t block_cols = 0;
  std::string where;  // "config.json: quantization_config.config_groups.group_0: NVFP4", for messages
};

class QuantConfig {
 public:
  static QuantConfig read(const Checkpoint& checkpoint);
  // `main` is quantization_config of config.json, `sidecar` the content of hf_quant_config.json.
  static QuantConfig from(const std::optional<Fields>& main, const std::optional<Fields>& sidecar);

  QuantMethod method() const { return method_; }
  // "compressed-tensors (config.json: quantization_config)"; empty without a description.
  const std::string& description() const { return description_; }

  bool excludes(std::string_view module) const;
  // nullptr when the description says nothing of the module. An exclusion comes first.
  const QuantRule* rule_for(std::string_view module) const;
  // As rule_for, of a module that is not excluded.
  const QuantRule* rule_of_included(std::string_view module) const;
  // Weight-only for every rule that says anything.
  bool weight_only() const;

  // "FP8" or the like when the KV cache was calibrated; empty otherwise.
  const std::string& kv_cache() const { return kv_cache_; }

 private:
  friend class QuantConfigReader;
  QuantMethod method_ = QuantMethod::none;
  std::string description_;
  std::string kv_cache_;
  ModuleSet excluded_;
  std::vector<QuantRule> rules_;
  std::unordered_map<std::string, std::size_t> listed_;  // modules with a rule of their own
};

}  // namespace sluice::ckpt
