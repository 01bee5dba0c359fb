// A rank on a GPU, for scripts/gpu_ranks_check.sh: `nccl_probe MODE [--tp N] [--limit SECONDS]`. Rank r uses GPU r.
//
// It starts its ranks and joins them as the command line does. "conformance" runs every check of groups over NCCL and
// prints a line a check; "kill", "stop", "hang" and "throw" are faults of rank 1 while all ranks sum without end.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl.h"
#include "comm/probe.h"
#include "comm/staged_group.h"
#include "core/error.h"

namespace sluice {
namespace {

struct Request {
  std::string mode;
  int tp = 1;
  double limit = 5;
};

Request parse(int argc, char** argv) {
  Request r;
  r.mode = argc > 1 ? argv[1] : "conformance";
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--tp") r.tp = std::stoi(value);
    if (flag == "--limit") r.limit = std::stod(value);
  }
  return r;
}

void break_rank(const std::string& mode) {
  if (mode == "kill") raise(SIGKILL);
  if (mode == "stop") raise(SIGSTOP);
  if (mode == "throw") fail(ErrorCode::bad_input, "shard 2 can't be read", "a readable file");
  if (mode == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
}

// Sums without end: what ends it is the fault of rank 1.
[[noreturn]] void sum_on(Group& gpus, const std::string& mode) {
  constexpr std::size_t kFloats = 1'000'000;
  constexpr int kBefore = 50;
  const std::vector<float> zeros(kFloats);
  const test::OnGpu memory(zeros.data(), zeros.size() * sizeof(float));
  for (int i = 0;; ++i) {
    if (i == kBefore && gpus.rank() == 0) {
      std::printf("started\n");
      std::fflush(stdout);
    }
    if (i >= kBefore && gpus.rank() == 1) break_rank(mode);
    gpus.all_reduce_sum(reinterpret_cast<float*>(memory.data()), kFloats, {});
    test::ok(cudaStreamSynchronize(nullptr));
  }
}

int work(Group& world, const Request& request) {
  test::ok(cudaSetDevice(world.rank()));
  auto gpus = comm::make_nccl_group(world, {world.rank(), request.limit});
  if (request.mode != "conformance") sum_on(*gpus, request.mode);
  test::Staged staged(std::move(gpus));
  test::print_conformance(staged);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const sluice::Request request = sluice::parse(argc, argv);
  return sluice::test::run_probe({request.tp, request.limit, 60, 0}, argc, argv,
                                 [&](sluice::Group& world) { return sluice::work(world, request); });
}
