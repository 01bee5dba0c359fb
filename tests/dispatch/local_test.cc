#include <gtest/gtest.h>

#include <vector>

#include "dispatch/dispatcher.h"

namespace sluice {
namespace {

TEST(LocalDispatcher, LeavesTokensWhereTheyAreAndHoldsAllSlots) {
  const auto local = make_local_dispatcher(5);
  const std::vector<float> hidden = {1, 2, 3, 4}, weights = {0.5f, 0.5f};
  const std::vector<LogicalId> ids = {LogicalId{4}, LogicalId{-1}};
  Workspace none;
  const Dispatched d =
      local->dispatch({dense_view(hidden.data(), DType::f32, 2, 2), ids.data(), weights.data(), 1}, none, {});
  EXPECT_EQ(d.hidden.data, hidden.data());
  EXPECT_EQ(d.hidden.rows, 2);
  EXPECT_EQ(static_cast<const void*>(d.ids), ids.data());
  EXPECT_EQ(d.ids[0], SlotId{4});
  EXPECT_EQ(d.ids[1], kNoSlot);
  EXPECT_EQ(d.weights, weights.data());
  EXPECT_TRUE(d.slots.contains(SlotId{0}) && d.slots.contains(SlotId{4}));
  EXPECT_FALSE(d.slots.contains(SlotId{5}) || d.slots.contains(kNoSlot));
  EXPECT_EQ(local->kind(), DispatchKind::local);
  EXPECT_EQ(local->workspace_bytes(1000, 8, 4096), 0u);
}

TEST(LocalDispatcher, CombineChangesNothing) {
  const auto local = make_local_dispatcher(1);
  std::vector<float> sum = {1, 2, 3};
  Workspace none;
  int calls = 0;
  local->combine(dense_view(sum.data(), DType::f32, 1, 3), [&] { ++calls; }, none, {});
  EXPECT_EQ(sum, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace sluice
