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
  const std::int64_t first = 0, three = 3, bytes = 12, none = 0;
  std::vector<float> received(3);
  group->all_gather(data.data(), received.data(), {&first, &bytes});
  EXPECT_EQ(received, expected);
  group->all_gather(received.data(), received.data(), {&first, &bytes});  // in place
  EXPECT_EQ(received, expected);
  group->all_gather(nullptr, nullptr, {&first, &none});
  std::vector<float> reduced(3);
  group->reduce_scatter_sum(data.data(), reduced.data(), {&first, &three});
  EXPECT_EQ(reduced, expected);
  std::vector<float> exchanged(3);
  group->all_to_all({data.data(), {&first, &bytes}, exchanged.data(), {&first, &bytes}});
  EXPECT_EQ(exchanged, expected);
  EXPECT_EQ(group->split(0)->size(), 1);
}

}  // namespace
}  // namespace sluice
