#include <gtest/gtest.h>

#include <vector>

#include "comm/group.h"

namespace sluice {
namespace {

TEST(SingleGroup, IsOneRank) {
  const auto group = make_single_group();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->name(), "single");
}

TEST(SingleGroup, CollectivesKeepTheData) {
  const auto group = make_single_group();
  std::vector<float> data = {1.0f, -2.0f, 3.0f};
  const std::vector<float> expected = data;
  group->barrier();
  group->broadcast(data.data(), sizeof(float) * data.size(), 0);
  EXPECT_EQ(data, expected);
  group->all_reduce_sum(data.data(), data.size());
  EXPECT_EQ(data, expected);
  std::vector<float> gathered(3);
  group->all_gather(data.data(), sizeof(float) * data.size(), gathered.data());
  EXPECT_EQ(gathered, expected);
  group->all_gather(data.data(), sizeof(float) * data.size(), data.data());  // in place
  EXPECT_EQ(data, expected);
  group->all_gather(nullptr, 0, nullptr);
}

}  // namespace
}  // namespace sluice
