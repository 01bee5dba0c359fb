// sluice doctor: what was found on this machine, what is missing, and the line that fixes it.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "app/version.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "core/thread_pool.h"
#include "cpu/features.h"
#include "cuda/backend.h"

namespace sluice::cli {
namespace {

struct Finding {
  std::string what;
  std::string found;
  std::string advice;  // empty when nothing is missing
};

// Value of a "Key:   1234 kB" line of /proc/meminfo in bytes, 0 when there is none.
double memory_bytes(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  double value = 0;
  while (file >> name >> value) {
    std::getline(file, unit);
    if (name == key) return value * 1024;
  }
  return 0;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding huge_pages() {
  const std::string mode = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (mode.empty()) return {"huge pages", "unknown", ""};
  const bool off = mode.find("[never]") != std::string::npos;
  return {"huge pages", mode,
          off ? "weights would be read a few percent faster: echo madvise | sudo tee "
                "/sys/kernel/mm/transparent_hugepage/enabled"
              : ""};
}

Finding instruction_set() {
  const cpu::Features features = cpu::detect_features();
  return {"instruction set", cpu::describe(features, cpu::choose_isa(features)),
          features.avx2 ? "" : "without AVX2 the CPU runner is slow; nothing can be installed for that"};
}

std::vector<Finding> findings() {
  utsname system = {};
  uname(&system);
  std::vector<Finding> list;
  list.push_back({"version", app::version_text(), ""});
  list.push_back({"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine), ""});
  list.push_back({"processors", fmt::format("{} usable", available_processors()), ""});
  list.push_back(instruction_set());
  list.push_back({"memory",
                  fmt::format("{} available of {}", human_bytes(memory_bytes("MemAvailable:")),
                              human_bytes(memory_bytes("MemTotal:"))),
                  ""});
  list.push_back(huge_pages());
  const cuda::Status gpu = cuda::status();
  list.push_back({"CUDA", gpu.found, gpu.advice});
  const comm::EngineFound mpi = comm::find_mpi();
  list.push_back({"ranks on CPUs", mpi.found, mpi.advice});
  const comm::EngineFound nccl = comm::find_nccl();
  list.push_back({"ranks on GPUs", nccl.found, nccl.advice});
  return list;
}

}  // namespace

int doctor_command(const Options& options) {
  Json::Array rows;
  for (const Finding& f : findings()) {
    fmt::print("{:<16} {}\n", f.what, f.found);
    if (!f.advice.empty()) fmt::print("{:<16} > {}\n", "", f.advice);
    rows.push_back(Json(Json::Object{{"what", Json(f.what)}, {"found", Json(f.found)}, {"advice", Json(f.advice)}}));
  }
  if (!options.json.empty()) write_json(options.json, Json(rows));
  return 0;
}

}  // namespace sluice::cli
