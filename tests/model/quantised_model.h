// A checkpoint written in another number format by the exporter, for tests of loading and of ranks.
#pragma once

#include <string>
#include <vector>

#include "model/family.h"

namespace sluice::testing {

// Experts and the projections that match `include` are quantised. The folder is deleted with the object.
class QuantisedModel {
 public:
  QuantisedModel(const std::string& source, const model::Family& family, const std::string& format,
                 std::vector<std::string> include = {"*self_attn*_proj", "*mlp.gate_proj", "*mlp.up_proj",
                                                     "*mlp.down_proj"});
  ~QuantisedModel();
  QuantisedModel(const QuantisedModel&) = delete;
  QuantisedModel& operator=(const QuantisedModel&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace sluice::testing
