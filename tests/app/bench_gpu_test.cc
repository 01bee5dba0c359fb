// What of the GPU bench needs no GPU: figures of other software, and what is derived from times.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "app/bench_moe_gpu.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::app {
namespace {

TEST(GpuBenchPeers, TheStoredFileIsRead) {
  const std::vector<PeerPoint> peers = read_peers(std::string(SLUICE_SOURCE_DIR) + "/bench/peers/flashinfer-h200.csv");
  ASSERT_EQ(peers.size(), 112u);  // five shapes and eight token counts in three recipes, but for one shape in fp8-block
  EXPECT_EQ(peers[0].shape, "mixtral-8x7b");
  EXPECT_EQ(peers[0].recipe, Recipe::bf16);
  EXPECT_EQ(peers[0].tokens, 1);
  EXPECT_DOUBLE_EQ(peers[0].us, 182.6);
  EXPECT_DOUBLE_EQ(peers[0].floor_us, 154.9);
}

TEST(GpuBenchPeers, ABadLineIsNamed) {
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + "peers.csv";
  for (const char* line : {"bf16,tiny,1,0,3", "int3,tiny,1,2,3", "bf16,tiny,one,2,3", "bf16,tiny,1"}) {
    write_file(path, std::string("recipe,shape,tokens,us,floor_us\nbf16,tiny,1,2.5,1.5\n") + line + "\n");
    try {
      read_peers(path);
      ADD_FAILURE() << line;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(e.what()).find(path + ":3"), std::string::npos) << e.what();
    }
  }
  std::remove(path.c_str());
}

TEST(GpuBenchPoint, SharesAndRatesByHand) {
  GpuMoePoint p;
  p.median_us = 20;
  p.floor_us = 10;
  p.bytes = 40e6;
  p.operations = 6e9;
  EXPECT_DOUBLE_EQ(p.percent_of_floor(), 50);
  EXPECT_DOUBLE_EQ(p.tb_per_s(), 2);
  EXPECT_DOUBLE_EQ(p.tflop_per_s(), 300);
  EXPECT_DOUBLE_EQ(p.speedup(), 0);  // no peer
  p.peer_us = 36;
  p.peer_floor_us = 12;
  EXPECT_DOUBLE_EQ(p.speedup(), 1.5);  // 3 times its floor against 2 times
}

}  // namespace
}  // namespace sluice::app
