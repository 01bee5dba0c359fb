// Files that commands write beside what they print.
#pragma once

#include <string>

#include "core/json.h"

namespace sluice::cli {

// Writes indented JSON; the file appears complete or not at all. Throws Error(resources).
void write_json(const std::string& path, const Json& value);

}  // namespace sluice::cli
