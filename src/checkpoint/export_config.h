// The description of an exported checkpoint: config.json with its quantization_config, and hf_quant_config.json where
// the dialect has one. Called by export.cc. Pure functions on JSON: thread-safe.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/export_format.h"
#include "core/json.h"

namespace sluice::ckpt {

struct QuantDescription {
  ExportTarget target;
  std::vector<std::string> excluded;   // linear modules that are not quantised
  std::vector<std::string> quantised;  // modules outside routed experts that are
  std::string producer_version;
};

// The source's config.json with the new description in place of an old one.
Json exported_config(const Json& source, const QuantDescription& description);

// Content of hf_quant_config.json; null when the dialect has no such file.
Json hf_quant_config(const QuantDescription& description);

// Modules that are left out, as the dialect spells them.
std::vector<std::string> spelled_exclusions(const QuantDescription& description);

}  // namespace sluice::ckpt
