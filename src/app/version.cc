#include "app/version.h"

#include <fmt/core.h>

#include "cpu/features.h"

namespace sluice::app {

std::string version_text() {
  const cpu::Features features = cpu::detect_features();
  return fmt::format("sluice {} ({}, {})", SLUICE_VERSION, SLUICE_COMPILER,
                     cpu::describe(features, cpu::choose_isa(features)));
}

std::string build_text() { return fmt::format("{} ({})", SLUICE_VERSION, SLUICE_COMPILER); }

std::string version_number() { return SLUICE_VERSION; }

}  // namespace sluice::app
