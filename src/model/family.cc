#include "model/family.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace sluice::model {
namespace {

bool serves(const Family& family, const std::string& architecture) {
  return std::find(family.architectures.begin(), family.architectures.end(), architecture) !=
         family.architectures.end();
}

bool has_type(const Family& family, const std::string& type) {
  return family.name == type ||
         std::find(family.other_types.begin(), family.other_types.end(), type) != family.other_types.end();
}

std::string supported(const std::vector<Family>& families) {
  std::string list;
  for (const Family& family : families) {
    for (const std::string_view architecture : family.architectures) {
      if (!list.empty()) list += ", ";
      list += architecture;
    }
  }
  return list;
}

}  // namespace

std::string architecture_of(const Family& family, const ckpt::HfConfig& config) {
  for (const std::string& architecture : config.architectures()) {
    if (serves(family, architecture)) return architecture;
  }
  return config.model_type();
}

const Family& find_family(const std::vector<Family>& families, const ckpt::HfConfig& config) {
  std::string found;
  for (const std::string& architecture : config.architectures()) {
    for (const Family& family : families) {
      if (serves(family, architecture)) return family;
    }
    found += (found.empty() ? "" : ", ") + architecture;
  }
  const auto by_type = std::find_if(families.begin(), families.end(),
                                    [&](const Family& f) { return found.empty() && has_type(f, config.model_type()); });
  if (by_type != families.end()) return *by_type;
  if (found.empty()) found = config.model_type().empty() ? "none" : "model_type " + config.model_type();
  fail(ErrorCode::unsupported, config.root().origin() + ": architectures: " + found, "one of " + supported(families));
}

}  // namespace sluice::model
