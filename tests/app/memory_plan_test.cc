// What explain says a rank takes against what a rank that was loaded holds.
#include "app/memory_plan.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "app/wiring.h"
#include "model/families.h"
#include "model/quantised_model.h"
#include "model/rank_run.h"
#include "model/toy_model.h"

namespace sluice::app {
namespace {

std::vector<MemoryPlan> planned(const std::string& folder, const ParallelSizes& sizes) {
  const ModelFiles files = open_model_files(folder);
  const std::vector<ckpt::Scheme> dialects = schemes();
  ckpt::SchemeOptions headers;
  headers.read_ahead = false;
  headers.block_scales = false;
  const auto source = ckpt::find_scheme(dialects, *files.checkpoint).open(*files.checkpoint, files.names, headers);
  return plan_ranks(files.config, *source, sizes);
}

// Resident weights are those of the files, padded to panels; vectors and output scales are f32 there; latent heads are
// decoded.
void expect_plan(const std::string& folder, const ParallelSizes& asked, double most_padding) {
  const ParallelSizes sizes = resolve(asked);
  SCOPED_TRACE(sluice::testing::sizes_text(sizes));
  const std::vector<MemoryPlan> plans = planned(folder, sizes);
  ASSERT_EQ(static_cast<std::int32_t>(plans.size()), sizes.tp);
  std::mutex lock;
  sluice::testing::run_ranks(folder, sizes, {}, [&](const RankPlan& rank, const sluice::testing::TestDecoder& t) {
    const std::lock_guard guard(lock);
    const MemoryPlan& plan = plans[static_cast<std::size_t>(rank.rank)];
    const model::WeightBytes held = t.decoder->weight_bytes();
    const auto expect_near = [&](const char* what, std::int64_t bytes, std::int64_t stored) {
      EXPECT_GE(static_cast<double>(bytes), 0.99 * static_cast<double>(stored)) << what << ", rank " << rank.rank;
      EXPECT_LE(static_cast<double>(bytes), most_padding * static_cast<double>(stored))
          << what << ", rank " << rank.rank;
    };
    expect_near("experts", held.experts, plan.expert_bytes);
    expect_near("the rest", held.total() - held.experts, plan.weight_bytes() - plan.expert_bytes);
    EXPECT_EQ(t.decoder->kv_bytes_per_token(), plan.kv_bytes_per_token);
  });
}

constexpr ParallelSizes kSizes[] = {{1, 1}, {2, 1}, {3, 3}, {4, 2}};

TEST(MemoryPlan, RanksHoldWhatIsPlanned) {
  const sluice::testing::ToyModel toy;
  for (const ParallelSizes& sizes : kSizes) expect_plan(toy.folder(), sizes, 1.05);
}

TEST(MemoryPlan, RanksOfQuantisedModels) {
  const sluice::testing::ToyModel toy;
  for (const char* format : {"fp8-block", "nvfp4", "mxfp4"}) {
    SCOPED_TRACE(format);
    const sluice::testing::QuantisedModel model(toy.folder(), model::qwen3_moe_family(), format);
    // Pieces of key and value projections are narrower than the panels they are padded to.
    for (const ParallelSizes& sizes : kSizes) expect_plan(model.folder(), sizes, 1.13);
  }
}

TEST(MemoryPlan, LatentAttentionAndSharedExperts) {
  for (const ParallelSizes& sizes : kSizes) expect_plan(sluice::testing::bundled_model("deepseek_v3"), sizes, 1.10);
}

TEST(MemoryPlan, DataParallelAttentionIsWhole) {
  const std::string folder = sluice::testing::bundled_model("qwen3_moe");
  ParallelSizes sizes{4, 4, 4};
  sizes.dp_attention = true;
  expect_plan(folder, sizes, 1.05);
  const MemoryPlan whole = planned(folder, {}).front();
  for (const MemoryPlan& plan : planned(folder, resolve(sizes))) {
    EXPECT_EQ(plan.linear_bytes, whole.linear_bytes);
    EXPECT_EQ(4 * plan.expert_bytes, whole.expert_bytes);
    EXPECT_EQ(plan.kv_bytes_per_token, whole.kv_bytes_per_token);
  }
}

// The plan of one rank and the sum over formats are two ways to the same bytes, tensor scales apart.
TEST(MemoryPlan, OneRankHoldsTheFiles) {
  for (const char* name : {"qwen3_moe", "deepseek_v3", "gpt_oss"}) {
    const std::string folder = sluice::testing::bundled_model(name);
    const auto checkpoint = ckpt::Checkpoint::open(folder);
    EXPECT_EQ(planned(folder, {}).front().weight_bytes(), static_cast<std::int64_t>(checkpoint->tensor_bytes()))
        << name;
  }
}

}  // namespace
}  // namespace sluice::app
