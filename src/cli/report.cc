#include "cli/report.h"

#include "core/file.h"

namespace sluice::cli {

void write_json(const std::string& path, const Json& value) { write_file(path, value.dump(2) + "\n"); }

}  // namespace sluice::cli
