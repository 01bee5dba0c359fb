#include "cli/report.h"

#include <cstdio>
#include <fstream>

#include "core/error.h"

namespace sluice::cli {

void write_text(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    std::remove(part.c_str());
    fail(ErrorCode::resources, "cannot write " + path, "a writable folder with free space");
  }
}

void write_json(const std::string& path, const Json& value) { write_text(path, value.dump(2) + "\n"); }

}  // namespace sluice::cli
