// That the comparisons of alltoall_test and rank_sums_test see what they must: each dispatcher is broken on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "dispatch/rank_sums.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerWorld;
using testing::RoutePattern;
using testing::WorldShape;
using Floats = std::vector<float>;

enum class Fault : std::uint8_t { none, slot_order, weight_twice, wrong_id_space, lost_row, doubled_row, work_beside };

// Changes what goes into dispatch or what comes out of it, on one rank.
class BrokenDispatcher final : public Dispatcher {
 public:
  BrokenDispatcher(std::unique_ptr<Dispatcher> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}

  DispatchKind kind() const override { return inner_->kind(); }
  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t width) const override {
    return inner_->workspace_bytes(tokens, top_k, width);
  }
  std::int64_t most_rows(std::int64_t tokens) const override { return inner_->most_rows(tokens); }

  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) override {
    const std::int64_t routes = input.hidden.rows * input.top_k;
    ids_.assign(input.ids, input.ids + routes);
    weights_.assign(input.weights, input.weights + routes);
    DispatchInput changed = input;
    changed.ids = ids_.data();
    changed.weights = weights_.data();
    if (fault_ == Fault::slot_order) {
      for (std::int64_t t = 0; t < input.hidden.rows; ++t) {
        std::reverse(ids_.begin() + t * input.top_k, ids_.begin() + (t + 1) * input.top_k);
        std::reverse(weights_.begin() + t * input.top_k, weights_.begin() + (t + 1) * input.top_k);
      }
    }
    if (fault_ == Fault::weight_twice) {
      for (float& weight : weights_) weight *= weight;
    }
    Dispatched d = inner_->dispatch(changed, workspace, stream);
    break_slots(d);
    return d;
  }

  void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& workspace, Stream stream) override {
    const auto work = [&] {
      meanwhile();
      if (fault_ == Fault::work_beside) fail(ErrorCode::resources, "no memory beside the exchange");
    };
    inner_->combine(out, work, workspace, stream);
  }

 private:
  void break_slots(Dispatched& d) {
    const std::int64_t routes = (d.quantized.codes ? d.quantized.codes.rows : d.hidden.rows) * d.top_k;
    slots_.assign(d.ids, d.ids + routes);
    const auto is_local = [&](SlotId s) { return d.slots.contains(s); };
    if (fault_ == Fault::wrong_id_space) {  // local ids where slots are wanted
      for (SlotId& s : slots_) s = SlotId{raw(s) - d.slots.first};
    }
    const auto first = std::find_if(slots_.begin(), slots_.end(), is_local);
    if (fault_ == Fault::lost_row && first != slots_.end()) *first = kNoSlot;
    if (fault_ == Fault::doubled_row && first != slots_.end()) {
      const auto at = (first - slots_.begin()) / d.top_k * d.top_k;
      for (std::int64_t s = at; s < at + d.top_k; ++s) slots_[static_cast<std::size_t>(s)] = *first;
    }
    d.ids = slots_.data();
  }

  std::unique_ptr<Dispatcher> inner_;
  Fault fault_;
  std::vector<LogicalId> ids_;
  std::vector<SlotId> slots_;
  Floats weights_;
};

class RankFaults : public ::testing::TestWithParam<Recipe> {
 protected:
  RankFaults() {
    WorldShape shape;
    shape.recipe = GetParam();
    shape.hidden = 768;
    w = make_world(shape);
    batch = batch_for(w, 6, RoutePattern::uniform);
    want = run_alone(w, batch);
    whole = testing::run_whole(w, batch);
  }

  void use(const ParallelSizes& sizes, Fault fault) {
    w.sizes = sizes;
    w.wrap = [fault, last = sizes.tp - 1](std::unique_ptr<Dispatcher> inner, int rank) -> std::unique_ptr<Dispatcher> {
      return std::make_unique<BrokenDispatcher>(std::move(inner), rank == last ? fault : Fault::none);
    };
  }

  bool equal_bits() {
    const auto got = run_ranks(w, cut_batch(batch, w.sizes.dp));
    bool equal = true;
    for (std::int32_t r = 0; r < w.sizes.tp; ++r) {
      equal = equal && got[static_cast<std::size_t>(r)].out == part_of_output(want, w, batch, r);
    }
    return equal;
  }

  LayerWorld w;
  Batch batch;
  Floats want;
  testing::Whole whole;
};

TEST_P(RankFaults, AllToAllWouldDifferInBits) {
  const ParallelSizes sizes = testing::parallel_sizes(3, 3, 3, MoeA2a::alltoall);
  use(sizes, Fault::none);
  EXPECT_TRUE(equal_bits());
  for (const Fault fault : {Fault::slot_order, Fault::weight_twice, Fault::wrong_id_space}) {
    use(sizes, fault);
    EXPECT_FALSE(equal_bits()) << static_cast<int>(fault);
  }
}

// Buffers of the exchange go with the error, so it comes to its end first: no other rank fails for it.
TEST_P(RankFaults, WorkThatFailsBesideTheExchangeDoesNotTakeItsBuffersAway) {
  use(testing::parallel_sizes(3, 3, 3, MoeA2a::alltoall), Fault::work_beside);
  try {
    run_ranks(w, cut_batch(batch, w.sizes.dp));
    FAIL() << "no rank failed";
  } catch (const Error& e) {  // of the first rank that failed, which is the last
    EXPECT_STREQ(e.what(), "no memory beside the exchange");
  }
}

TEST_P(RankFaults, SumsWouldExceedTheirBound) {
  for (const ParallelSizes& sizes : {testing::parallel_sizes(3, 3, 1), testing::parallel_sizes(4, 2, 1),
                                     testing::parallel_sizes(3, 3, 3), testing::parallel_sizes(4, 2, 2)}) {
    for (const Fault fault :
         {Fault::none, Fault::weight_twice, Fault::wrong_id_space, Fault::lost_row, Fault::doubled_row}) {
      use(sizes, fault);
      const double ratio = worst_in_bounds(w, batch, want, whole);
      EXPECT_EQ(ratio > 1.0, fault != Fault::none) << static_cast<int>(fault) << ": " << ratio;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RankFaults,
                         ::testing::Values(Recipe::bf16, Recipe::nvfp4_w4a4_cutedsl, Recipe::mxfp4_w4a16),
                         [](const auto& c) { return testing::recipe_test_name(c.param); });

}  // namespace
}  // namespace sluice
