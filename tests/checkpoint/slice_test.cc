// What a rank reads of a layer's experts: every arrangement of files, every format, cut between groups of scales.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/scheme_plain.h"
#include "expert_files.h"

namespace sluice::ckpt {
namespace {

constexpr Files kFiles[] = {Files::per_expert, Files::stacked};
constexpr GateUp kOrders[] = {GateUp::separate, GateUp::gate_then_up, GateUp::up_then_gate, GateUp::interleaved};

LogicalId id(int e) { return LogicalId{e}; }

// Values are computed from (expert, row, column) of the whole model: expert_files.h.
void expect_slice(const ExpertWeights& w, const Sizes& s, const ExpertSlice& slice) {
  const Share inner = slice.inner;
  ASSERT_EQ(w.up.size(), slice.experts.size());
  for (std::size_t i = 0; i < slice.experts.size(); ++i) {
    const std::int64_t e = raw(slice.experts[i]);
    const auto gate = [&](auto n, auto h) { return gate_value(s, e, inner.begin + n, h); };
    const auto up = [&](auto n, auto h) { return up_value(s, e, inner.begin + n, h); };
    const auto down = [&](auto h, auto n) { return down_value(s, e, h, inner.begin + n); };
    expect_matrix(w.gate[i], inner.count(), s.width, gate);
    expect_matrix(w.up[i], inner.count(), s.width, up);
    expect_matrix(w.down[i], s.width, inner.count(), down);
    ASSERT_EQ(w.gate_bias[i].count, inner.count());
    ASSERT_EQ(w.up_bias[i].count, inner.count());
    ASSERT_EQ(w.down_bias[i].count, s.width);
    for (std::int64_t n = 0; n < inner.count(); ++n) {
      EXPECT_EQ(decode_bias(w.gate_bias[i], n), gate_bias_value(e, inner.begin + n));
      EXPECT_EQ(decode_bias(w.up_bias[i], n), up_bias_value(e, inner.begin + n));
    }
    for (std::int64_t h = 0; h < s.width; ++h) {
      EXPECT_EQ(decode_bias(w.down_bias[i], h), inner.begin == 0 ? down_bias_value(e, h) : 0.0f);
    }
  }
}

TEST(ExpertSlice, EveryArrangementGivesTheRanksPart) {
  const Sizes s;
  for (const Files files : kFiles) {
    for (const GateUp order : kOrders) {
      for (const bool transposed : {false, true}) {
        const TempFolder folder;
        const ExpertNames names = arrangement(files, order, transposed);
        Builder b;
        add_experts(b, names, s);
        const auto checkpoint = b.open(folder);
        const auto source = plain_scheme().open(*checkpoint, map_of({names}));
        for (const Share inner : {Share{0, 1}, Share{1, 4}, Share{0, 4}}) {
          for (const std::vector<LogicalId>& experts : {std::vector{id(2), id(0)}, std::vector{id(1), id(1)}}) {
            SCOPED_TRACE(testing::Message()
                         << "files " << static_cast<int>(files) << " order " << static_cast<int>(order)
                         << " transposed " << transposed << " inner " << inner.begin << ".." << inner.end);
            expect_slice(source->experts(0, layer(s, true), {experts, inner}), s, {experts, inner});
          }
        }
        EXPECT_TRUE(source->unused().empty());
      }
    }
  }
}

// What is read ahead. Of one f32 expert of [4, 4] with biases of 4: two rows of gate and of up, all of down, all
// biases.
TEST(ExpertSlice, BytesAreThoseOfTheRank) {
  for (const Files files : kFiles) {
    const TempFolder folder;
    const ExpertNames names = arrangement(files, GateUp::separate, false);
    Builder b;
    add_experts(b, names, {});
    const auto checkpoint = b.open(folder);
    const auto source = plain_scheme().open(*checkpoint, map_of({names}));
    EXPECT_EQ(source->bytes(0), 3u * (3 * 64 + 3 * 16));
    source->expect_experts(0, {{id(2)}, {1, 3}});
    EXPECT_EQ(source->bytes(0), 32u + 32 + 64 + 3 * 16);
    source->expect_experts(0, {{id(2), id(0)}, {}});
    EXPECT_EQ(source->bytes(0), 2u * (3 * 64 + 3 * 16));
    EXPECT_EQ(source->bytes(1), 0u);
  }
}

TEST(ExpertSlice, IsRefusedOutsideOfTheLayer) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::separate, false);
  Builder b;
  add_experts(b, names, {});
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  for (const ExpertSlice& slice :
       {ExpertSlice{{id(3)}, {}}, ExpertSlice{{id(-1)}, {}}, ExpertSlice{{}, {2, 5}}, ExpertSlice{{}, {3, 2}}}) {
    EXPECT_THROW(source->experts(0, layer({}), slice), Error);
  }
}

}  // namespace
}  // namespace sluice::ckpt
