// Model families: how the config.json and the tensor names of one architecture become a ModelConfig and a name map.
//
// One entry a family, plain data and functions; app/wiring.cc holds the one list. A new family is one file
// family_NAME.cc with NAME_family(), which model/families.h declares (made by CMake), one line of that list, and its
// tests.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/name_map.h"
#include "model/config.h"

namespace sluice::model {

struct Family {
  std::string_view name;                            // "qwen3_moe", also the model_type of config.json
  std::vector<std::string_view> architectures;      // entries of config.json: architectures
  ModelConfig (*configure)(const ckpt::HfConfig&);  // throws Error(bad_input | unsupported) naming the field
  ckpt::NameMap (*names)(const ModelConfig&);
  std::vector<std::string_view> other_types = {};  // further model_types of files without architectures
};

// The family of a checkpoint by `architectures`, else by `model_type`. Throws Error(unsupported) listing all supported
// architectures when there is none.
const Family& find_family(const std::vector<Family>& families, const ckpt::HfConfig& config);

// The first architecture of the file that the family serves; without any, that of its model_type.
std::string architecture_of(const Family& family, const ckpt::HfConfig& config);

}  // namespace sluice::model
