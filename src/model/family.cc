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

const Family& find_family(const std::vector<Family>& families, const ckpt::HfConfig& config) {
  std::string found;
  for (const std::string& architecture : config.architectures()) {
    for (const Family& family : families) {
      if (serves(family, architecture)) return family;
    }
    found += (found.empty() ? "" : ", ") + architecture;
  }
  const auto by_type = std::find_if(families.begin(), families.end(),
                                    [&](const Family& f) { return found.empty() && f.name == config.model_type(); });
  if (by_type != families.end()) return *by_type;
  if (found.empty()) found = config.model_type().empty() ? "none" : "model_type " + config.model_type();
  fail(ErrorCode::unsupported, config.root().origin() + ": architectures: " + found, "one of " + supported(families));
}

}  // namespace sluice::model
