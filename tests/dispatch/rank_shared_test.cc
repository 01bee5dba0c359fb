// The shared expert over ranks: in pieces it is part of what ranks sum, whole it is added at home, with alltoall while
// rows are under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/error.h"
#include "dispatch/rank_world.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerWorld;
using testing::RankResult;
using testing::RoutePattern;
using testing::WorldShape;
using Floats = std::vector<float>;

constexpr std::int64_t kHidden = 32, kInner = 48;

// Small integers, so that with recipe f32 and relu2 every sum is exact, however it is cut. An output gate of
// zeros is exactly one half.
struct Integers {
  Floats up, down, gate, half = Floats(kHidden, 0.0f);
  Integers() {
    testing::Random random(3);
    for (auto* list : {&up, &down}) {
      for (std::int64_t i = 0; i < kInner * kHidden; ++i) list->push_back(static_cast<float>(random.below(5) - 2));
    }
    for (std::int64_t i = 0; i < kHidden; ++i) gate.push_back(0.25f * static_cast<float>(random.below(5) - 2));
  }
};
const Integers& integers() {
  static const Integers values;
  return values;
}

QuantTensor matrix(const Floats& values, std::int64_t rows, std::int64_t cols) {
  QuantTensor t;
  t.codes = {values.data(), DType::f32, rows, cols, cols, 1};
  return t;
}

// Piece `piece` of the shared expert's I.
std::unique_ptr<SharedExpert> shared_expert(Backend& backend, const Piece& piece, const Floats* gate, Recipe recipe) {
  auto e = std::make_unique<SharedExpert>();
  const Share share = share_of(kInner, 16, piece);
  e->activation.kind = ActivationKind::relu2;
  e->compute = recipe == Recipe::f32 ? DType::f32 : DType::bf16;
  e->up = backend.prepare_dense(rows_of(matrix(integers().up, kInner, kHidden), share), recipe);
  e->down = backend.prepare_dense(columns_of(matrix(integers().down, kHidden, kInner), share), recipe);
  if (gate != nullptr) e->output_gate = backend.prepare_dense(matrix(*gate, 1, kHidden), Recipe::f32);
  e->partial = !piece.whole();
  return e;
}

class RankShared : public ::testing::TestWithParam<bool> {
 protected:
  static LayerWorld world(Recipe recipe, bool pieces, const Floats& gates) {
    WorldShape shape;
    shape.recipe = recipe;
    shape.hidden = kHidden;
    LayerWorld w = make_world(shape);
    w.make_shared = [recipe, pieces, gate = GetParam() ? &gates : nullptr](Backend& backend, const RankPlan& plan) {
      const Piece all = {plan.rank, plan.sizes.tp};
      return shared_expert(backend, pieces ? all : Piece{}, gate, recipe);
    };
    return w;
  }
};

TEST_P(RankShared, PiecesAreSummedOnce) {
  LayerWorld w = world(Recipe::f32, true, integers().half);
  Batch batch = batch_for(w, 5, RoutePattern::uniform);
  for (std::int64_t i = 0; i < 5 * kHidden; ++i) {
    reinterpret_cast<float*>(batch.hidden.data())[i] = static_cast<float>(i * 7 % 5 - 2);
  }
  std::fill(batch.ids.begin(), batch.ids.end(), SlotId{-1});  // the shared expert alone
  const Floats want = run_alone(w, batch);
  EXPECT_TRUE(std::any_of(want.begin(), want.end(), [](float v) { return std::fabs(v) > 10.0f; }));
  for (const std::int32_t ranks : {2, 3}) {
    w.sizes = testing::parallel_sizes(ranks, ranks, 1);
    for (const RankResult& r : run_ranks(w, {batch})) {
      EXPECT_EQ(r.out, want);
    }
  }
}

// The same bits whether it is computed after the experts of one rank or while rows are on their way home.
TEST_P(RankShared, WholeWithAllToAllHasTheBitsOfOneRank) {
  for (const Recipe recipe : {Recipe::f32, Recipe::bf16}) {
    LayerWorld w = world(recipe, false, integers().gate);
    const Batch batch = batch_for(w, 9, RoutePattern::uniform);
    const Floats want = run_alone(w, batch);
    LayerWorld none = w;
    none.make_shared = nullptr;
    EXPECT_NE(run_alone(none, batch), want);
    for (const std::int32_t dp : {1, 2, 4}) {
      w.sizes = testing::parallel_sizes(4, 4, dp, MoeA2a::alltoall);
      const auto got = run_ranks(w, cut_batch(batch, dp));
      for (std::int32_t r = 0; r < 4; ++r) {
        EXPECT_EQ(got[static_cast<std::size_t>(r)].out, part_of_output(want, w, batch, r));
      }
    }
  }
}

TEST_P(RankShared, PiecesAreRefusedWhereNobodySumsThem) {
  LayerWorld w = world(Recipe::f32, true, integers().half);
  const Batch batch = batch_for(w, 4, RoutePattern::uniform);
  for (const ParallelSizes& sizes :
       {testing::parallel_sizes(2, 2, 2), testing::parallel_sizes(2, 2, 1, MoeA2a::alltoall)}) {
    w.sizes = sizes;
    EXPECT_THROW(run_ranks(w, cut_batch(batch, sizes.dp)), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(OutputGate, RankShared, ::testing::Bool(),
                         [](const auto& c) { return c.param ? "with" : "without"; });

}  // namespace
}  // namespace sluice
