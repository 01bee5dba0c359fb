// What a build with the CUDA backend says on a machine that may have no GPU.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "cuda/backend.h"
#include "cuda/device.h"
#include "cuda/runner_hopper.h"

namespace sluice::cuda {
namespace {

Problem problem_of(Recipe recipe) {
  Problem p;
  p.recipe = recipe;
  p.device = {DeviceKind::cuda, 0};
  p.layer.hidden = 256;
  p.layer.intermediate = 128;
  p.layer.routing.experts = 8;
  p.layer.routing.top_k = 2;
  return p;
}

TEST(CudaStatus, SaysWhatTheMachineHas) {
  const Status s = status("/nowhere/version");
  std::string why;
  const bool some = device_count(&why) > 0;
  EXPECT_EQ(s.usable, some);
  if (some) {
    EXPECT_NE(s.found.find("GPU"), std::string::npos);
    return;
  }
  EXPECT_NE(s.found.find(why), std::string::npos);
  EXPECT_NE(s.found.find("no NVIDIA driver found"), std::string::npos);
  EXPECT_NE(s.advice.find("driver"), std::string::npos);
}

TEST(CudaStatus, AGpuThatIsNotThereIsRefusedWithExitCode4) {
  try {
    make_backend(device_count(nullptr) + 3);
    FAIL() << "a backend from nowhere";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 4);
    EXPECT_NE(std::string(e.what()).find("GPU"), std::string::npos);
  }
}

TEST(HopperRunner, AnswersBeforeAGpuIsNeeded) {
  const auto runner = make_hopper_runner(nullptr);
  Problem p = problem_of(Recipe::bf16);
  if (device_count(nullptr) == 0) {
    EXPECT_TRUE(runner->supports(p).ok);
  }
  p.layer.hidden = 264;
  EXPECT_EQ(runner->supports(p).reason, "H = 264 is no multiple of 16");
  p = problem_of(Recipe::bf16);
  p.layer.routing.top_k = 33;
  p.layer.routing.experts = 64;
  EXPECT_EQ(runner->supports(p).reason, "k is above 32");
  EXPECT_FALSE(runner->supports(problem_of(Recipe::mxfp4_w4a16)).ok);
  p = problem_of(Recipe::fp8_block);
  p.device = {};
  EXPECT_EQ(runner->supports(p).reason, "runs on a Hopper GPU only");
}

// The bound must hold for every smaller batch, because a step may have any number of tokens.
TEST(HopperRunner, WorkspaceGrowsWithTheBatch) {
  const auto runner = make_hopper_runner(nullptr);
  for (const Recipe recipe : {Recipe::bf16, Recipe::fp8_block, Recipe::fp8_tensor}) {
    std::size_t before = 0;
    for (std::int64_t tokens = 1; tokens < 20000; tokens = tokens * 5 / 4 + 1) {
      const std::size_t bytes = runner->workspace_bytes(problem_of(recipe), tokens);
      EXPECT_GE(bytes, before) << tokens;
      // At least the rows of both GEMM inputs and the slot rows.
      const std::size_t element = recipe == Recipe::bf16 ? 2 : 1;
      EXPECT_GE(bytes, static_cast<std::size_t>(tokens) * 2 * ((256 + 128) * element + 256 * 2)) << tokens;
      before = bytes;
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
