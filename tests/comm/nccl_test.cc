// GPUs as ranks, one thread a rank. Runs on a machine with GPUs: one rank on the first, and as many ranks as there are
// GPUs. NCCL_NVLS_ENABLE=0 is set by who runs it on machines whose links are shared.
#include "comm/nccl.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "comm/group_conformance.h"
#include "comm/staged_group.h"
#include "core/error.h"

namespace sluice {
namespace {

using test::ok;
using test::OnGpu;
using test::Staged;

int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// `work` gets the host group and a group of GPUs over it, in a thread a rank; what they threw, "" where nothing was.
std::vector<std::string> as_ranks(int ranks, double timeout,
                                  const std::function<void(Group&, std::unique_ptr<Group>)>& work) {
  std::vector<std::unique_ptr<Group>> hosts = make_thread_groups(ranks, timeout);
  std::vector<std::string> errors(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<Group> host = std::move(hosts[r]);
      try {
        ok(cudaSetDevice(static_cast<int>(r)));
        work(*host, comm::make_nccl_group(*host, {static_cast<int>(r), timeout}));
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

TEST(Nccl, EveryCheckOfGroups) {
  ASSERT_GT(gpus(), 0) << "this test needs a GPU";
  std::printf("%s, %d GPUs\n", comm::find_nccl().found.c_str(), gpus());
  for (int ranks = 1; ranks <= gpus(); ++ranks) {
    const auto errors = as_ranks(ranks, 60, [](Group&, std::unique_ptr<Group> g) {
      Staged staged(std::move(g));
      for (const test::Check& check : test::conformance_checks()) {
        check.run(staged);
        if (staged.rank() == 0) std::printf("%s, %d ranks: ok\n", check.name, staged.size());
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Rank 1 is late, or leaves: rank 0's stream comes back, and its next call says why.
std::string after_an_absence(bool leave, double timeout) {
  const auto errors = as_ranks(2, timeout, [leave](Group& host, std::unique_ptr<Group> g) {
    const std::vector<float> zeros(100'000);
    const OnGpu memory(zeros.data(), zeros.size() * sizeof(float));
    auto* const data = reinterpret_cast<float*>(memory.data());
    g->all_reduce_sum(data, 100'000, {});
    ok(cudaStreamSynchronize(nullptr));
    host.barrier();
    if (g->rank() == 1) {
      if (!leave) std::this_thread::sleep_for(std::chrono::seconds(6));
      throw std::runtime_error("left");
    }
    g->all_reduce_sum(data, 100'000, {});
    ok(cudaStreamSynchronize(nullptr));
    g->all_reduce_sum(data, 100'000, {});
    ADD_FAILURE() << "a broken group was used";
  });
  return errors[0];
}

TEST(Nccl, ALateRankIsNotWaitedForPastTheLimit) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  const std::string error = after_an_absence(false, 2);
  EXPECT_TRUE(has(error, "rank 0, all_reduce 2 of NCCL: no end within the limit")) << error;
}

TEST(Nccl, ARankThatLeavesEndsTheOthers) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = after_an_absence(true, 50);
  EXPECT_TRUE(has(error, "rank 0, all_reduce 2 of NCCL: a rank is gone")) << error;
  EXPECT_TRUE(has(error, "rank 1 has left the run")) << error;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

}  // namespace
}  // namespace sluice
