// Preparing weights gives up their bytes once, when nothing of them is left to read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "cpu/dense.h"
#include "cpu/gemm_harness.h"
#include "cpu/ops_embedding.h"
#include "cpu/ops_kernels.h"
#include "cpu/runner_cpu.h"
#include "cpu/runner_harness.h"

namespace sluice::cpu {
namespace {

TEST(RunnerRelease, EveryWeightOnceAndWhole) {
  constexpr std::int64_t kHidden = 96, kInner = 80;
  constexpr std::int32_t kExperts = 5;
  const Problem problem = testing::make_problem(kHidden, kInner, kExperts, 2);
  std::vector<testing::Matrix> matrices;
  for (std::int32_t i = 0; i < 3 * kExperts; ++i) {
    const bool down = i % 3 == 2;
    matrices.push_back(testing::random_matrix(down ? kHidden : kInner, down ? kInner : kHidden, DType::bf16,
                                              7 + static_cast<std::uint64_t>(i)));
  }
  // A release fills the bytes with NaN, which whoever read them afterwards would find in its results.
  const auto weights = [&](std::vector<testing::Matrix>& from) {
    ExpertWeights w;
    for (std::size_t i = 0; i < from.size(); i += 3) {
      w.gate.push_back(from[i].weight());
      w.up.push_back(from[i + 1].weight());
      w.down.push_back(from[i + 2].weight());
    }
    return w;
  };
  ThreadPool pool(2);
  const auto runner = make_cpu_runner(pool, Isa::scalar);
  std::vector<testing::Matrix> overwritten = matrices;
  std::map<const void*, std::vector<std::size_t>> released;
  std::mutex mutex;
  ExpertWeights watched = weights(overwritten);
  watched.release = [&](const void* data, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    released[data].push_back(bytes);
    std::memset(const_cast<void*>(data), 0xFF, bytes);
  };
  const auto got = runner->prepare(problem, std::move(watched));
  const auto want = runner->prepare(problem, weights(matrices));

  EXPECT_EQ(released.size(), matrices.size());
  for (const testing::Matrix& m : overwritten) {
    EXPECT_EQ(released[m.storage.data()], std::vector<std::size_t>{kHidden * kInner * 2});
  }
  const testing::Matrix x = testing::random_matrix(kExperts, kHidden, DType::bf16, 3);
  const auto run = [&](const PreparedExperts& prepared) {
    std::vector<SlotId> ids;
    for (std::int32_t t = 0; t < kExperts; ++t) {
      ids.push_back(SlotId{t});
      ids.push_back(SlotId{(t + 1) % kExperts});
    }
    const std::vector<float> mix(ids.size(), 0.5f);
    std::vector<float> out(static_cast<std::size_t>(kExperts) * kHidden);
    const Buffer scratch = host_buffer(runner->workspace_bytes(problem, kExperts));
    Workspace workspace(scratch.data(), scratch.bytes());
    RunArgs args;
    args.hidden = x.view();
    args.ids = ids.data();
    args.weights = mix.data();
    args.top_k = 2;
    args.slots = {0, kExperts};
    args.sum = dense_view(out.data(), DType::f32, kExperts, kHidden);
    args.workspace = &workspace;
    runner->run(prepared, args);
    return out;
  };
  EXPECT_EQ(run(*got), run(*want));
}

// Bytes that are released become NaN, and are counted.
class Released {
 public:
  explicit Released(testing::Matrix& matrix) : matrix_(matrix), times_(matrix.storage.size()) {}
  QuantTensor weight() {
    QuantTensor w = matrix_.weight();
    w.release = &release_;
    return w;
  }
  bool every_byte_once() const {
    return std::all_of(times_.begin(), times_.end(), [](int n) { return n == 1; });
  }
  // What stays mapped until something is released.
  double largest_share() const { return static_cast<double>(largest_) / static_cast<double>(times_.size()); }

 private:
  testing::Matrix& matrix_;
  std::vector<int> times_;
  std::size_t largest_ = 0;
  std::mutex mutex_;
  PageRelease release_ = [this](const void* data, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto first = static_cast<const std::byte*>(data) - matrix_.storage.data();
    largest_ = std::max(largest_, bytes);
    for (std::size_t i = 0; i < bytes; ++i) ++times_.at(static_cast<std::size_t>(first) + i);
    std::memset(const_cast<void*>(data), 0xFF, bytes);
  };
};

TEST(DenseRelease, EveryByteOnce) {
  testing::Matrix matrix = testing::random_matrix(32 * 40 + 5, 70, DType::bf16, 3), kept = matrix;
  ThreadPool pool(3);
  Released released(matrix);
  const auto got = make_dense(released.weight(), Recipe::bf16, pool, line_kernels(Isa::scalar));
  const auto want = make_dense(kept.weight(), Recipe::bf16, pool, line_kernels(Isa::scalar));
  EXPECT_TRUE(released.every_byte_once());
  EXPECT_EQ(std::memcmp(got->pair(0).records, want->pair(0).records, static_cast<std::size_t>(want->layout.bytes())),
            0);
}

// However few threads there are, which are given more at a time the fewer they are.
TEST(DenseRelease, NoWeightStaysMappedWhole) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    testing::Matrix weight = testing::random_matrix(32 * 64, 16, DType::bf16, 5), table = weight;
    Released of_weight(weight), of_table(table);
    make_dense(of_weight.weight(), Recipe::bf16, pool, line_kernels(Isa::scalar));
    const CpuEmbedding embedding(of_table.weight(), pool);
    EXPECT_LE(of_weight.largest_share(), 0.2) << threads << " threads";
    EXPECT_LE(of_table.largest_share(), 0.2) << threads << " threads";
  }
}

TEST(EmbeddingRelease, EveryByteOnce) {
  constexpr std::int64_t kRows = 333, kCols = 40;
  testing::Matrix matrix = testing::random_matrix(kRows, kCols, DType::bf16, 4), kept = matrix;
  ThreadPool pool(3);
  Released released(matrix);
  const CpuEmbedding got(released.weight(), pool), want(kept.weight(), pool);
  EXPECT_TRUE(released.every_byte_once());
  std::vector<std::int32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0);
  const auto rows = [&](const CpuEmbedding& table) {
    std::vector<float> out(kRows * kCols);
    table.look_up(ids.data(), dense_view(out.data(), DType::f32, kRows, kCols), ops_kernels(Isa::scalar), pool);
    return out;
  };
  EXPECT_EQ(rows(got), rows(want));
}

}  // namespace
}  // namespace sluice::cpu
