// Runs the tests that need a GPU: gpu_tests [--filter TEXT] [--cases N] [--list]. Exit code 0 = all passed, 1 = some
// failed, 77 = there is no GPU here (CTest counts that as skipped).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "cuda/device.h"
#include "gpu/harness.h"

namespace sluice::gpu_tests {
namespace {

std::vector<Test> all_tests() {
  std::vector<Test> all;
  for (auto* group :
       {route_tests, finalize_tests, oracle_tests, ops_tests, runner_tests, runner_stage_tests, runner_use_tests,
        runner_decode_tests, runner_decode_memory_tests, runner_gather_tests, runner_large_tests,
        runner_quantized_tests, ranks_turn_tests, ranks_dispatch_tests, ranks_nccl_tests}) {
    for (const Test& test : group()) all.push_back(test);
  }
  return all;
}

bool run(const Test& test, int cases) {
  constexpr std::size_t kShown = 5;
  Check check;
  check.cases = cases;
  const auto begin = std::chrono::steady_clock::now();
  // So that a run that is cut off names the test it was in.
  std::fprintf(stderr, "%s ...\n", test.name);
  try {
    test.run(check);
    if (check.checks() == 0) check.expect(false, "nothing was checked");
  } catch (const std::exception& e) {
    check.expect(false, std::string("threw: ") + e.what());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::size_t failed = check.failures().size();
  std::printf("%-4s %-44s %9lld checks %6.2f s  worst %.2e  %s\n", failed == 0 ? "ok" : "FAIL", test.name,
              static_cast<long long>(check.checks()), seconds, check.worst(), check.text().c_str());
  for (std::size_t i = 0; i < failed && i < kShown; ++i) std::printf("       %s\n", check.failures()[i].c_str());
  if (failed > kShown) std::printf("       and %zu more\n", failed - kShown);
  std::fflush(stdout);
  return failed == 0;
}

int main_of(int argc, char** argv) {
  std::string filter;
  bool list = false;
  int cases = Check().cases;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--list") == 0) list = true;
    if (std::strcmp(argv[i], "--cases") == 0 && i + 1 < argc) cases = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--filter") == 0 && i + 1 < argc) filter = argv[++i];
  }
  std::string why;
  if (!list && cuda::device_count(&why) == 0) {
    std::printf("no GPU here: %s\n", why.c_str());
    return 77;
  }
  int passed = 0, failed = 0;
  for (const Test& test : all_tests()) {
    if (std::string(test.name).find(filter) == std::string::npos) continue;
    if (list) {
      std::printf("%s\n", test.name);
    } else {
      ++(run(test, cases) ? passed : failed);
    }
  }
  if (list) return 0;
  std::printf("%d passed, %d failed, on %s\n", passed, failed, cuda::device_info(0).name.c_str());
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::gpu_tests

int main(int argc, char** argv) { return sluice::gpu_tests::main_of(argc, argv); }
