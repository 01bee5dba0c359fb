// Embedding and output projection cut over ranks: the bits of one rank, and no more memory than a rank's share.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "cpu/backend.h"
#include "model/golden.h"
#include "model/rank_columns.h"
#include "model/rank_run.h"
#include "moe/random_layer.h"

namespace sluice::testing {
namespace {

using Floats = std::vector<float>;

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Zeros of both signs, a NaN, infinity and a subnormal among other values.
Floats odd_values(std::int64_t count) {
  constexpr float kOdd[] = {0.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(), INFINITY, -1e-42f};
  Random random(17);
  Floats values(static_cast<std::size_t>(count));
  for (float& v : values) v = random.below(4) == 0 ? kOdd[random.below(5)] : random.symmetric(2.0f);
  return values;
}

// What a rank makes of `whole` [rows, columns] when each rank brings its own columns of it.
Floats gathered(Group& group, const std::vector<Share>& shares, const Floats& whole, std::int64_t rows, bool wanted) {
  ThreadPool pool(1);
  cpu::CpuBackend backend(pool, cpu::Isa::scalar);
  model::RankColumns columns(backend, group, shares);
  const std::int64_t width = shares.back().end;
  const Share own = shares[static_cast<std::size_t>(group.rank())];
  Floats memory(whole.size(), -7.0f), out(whole.size(), -7.0f);
  const TensorView view = dense_view(memory.data(), DType::f32, rows, width), part = columns.own_part(view);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(whole.begin() + r * width + own.begin, own.count(), part.row<float>(r));
  }
  columns.gather(view, dense_view(wanted ? out.data() : nullptr, DType::f32, rows, width), {});
  return out;
}

TEST(RankColumns, BringTheBitsOfEveryRank) {
  const std::vector<std::vector<Share>> cuts = {
      {{0, 5}, {5, 8}}, {{0, 1}, {1, 2}, {2, 67}}, {{0, 16}, {16, 32}, {32, 40}, {40, 41}}};
  for (const std::vector<Share>& shares : cuts) {
    for (const std::int64_t rows : {0, 1, 2, 255, 256, 257, 600}) {
      const Floats whole = odd_values(rows * shares.back().end);
      auto groups = make_thread_groups(static_cast<int>(shares.size()), 60);
      std::vector<Floats> got(shares.size());
      std::vector<std::thread> threads;
      for (std::size_t r = 0; r < got.size(); ++r) {
        threads.emplace_back([&, r] { got[r] = gathered(*groups[r], shares, whole, rows, r != 1); });
      }
      for (std::thread& t : threads) t.join();
      for (std::size_t r = 0; r < got.size(); ++r) {
        const bool right = r == 1 ? same_bits(got[r], Floats(whole.size(), -7.0f)) : same_bits(got[r], whole);
        EXPECT_TRUE(right) << rows << " rows, rank " << r << " of " << got.size();
      }
    }
  }
}

// OLMoE has its attention whole on every rank, and with all-to-all no sum is cut: what differs from one rank is where
// embedding and output projection are.
class RankEnds : public ::testing::TestWithParam<bool> {
 protected:
  RankEnds() : folder_({"olmoe"}) {
    options_.change_config = [](model::ModelConfig& c) { c.tied_embeddings = GetParam(); };
  }
  static ParallelSizes spread(std::int32_t ranks) {
    ParallelSizes sizes{ranks, ranks};
    sizes.a2a = MoeA2a::alltoall;
    return sizes;
  }

  GoldenFolder folder_;
  TestDecoderOptions options_;
};

TEST_P(RankEnds, LogitsHaveTheBitsOfOneRank) {
  constexpr std::int64_t kTokens = 70;  // more than are gathered at a time
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(kTokens));
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i * 29 % 96);
  for (const DType compute : {DType::bf16, DType::f32}) {
    options_.compute = compute;
    const TestDecoder whole = load_test_decoder(folder_.path(), options_);
    for (const std::int64_t chunk : {kTokens, std::int64_t{1}}) {
      const Floats one = prompt_logits(*whole.decoder, prompt, chunk);
      for (const std::int32_t ranks : {2, 3, 4}) {
        const auto logits = rank_logits(folder_.path(), spread(ranks), options_, prompt, chunk);
        for (const Floats& of_rank : logits) EXPECT_TRUE(same_bits(of_rank, one)) << ranks << " ranks, chunk " << chunk;
      }
    }
  }
}

// H = 60: four groups of columns, the last short, in whole groups.
TEST_P(RankEnds, RanksHoldTheirShareAlone) {
  const std::int64_t whole = load_test_decoder(folder_.path(), options_).decoder->weight_bytes().embedding;
  const std::vector<std::vector<std::int64_t>> columns = {{32, 28}, {32, 16, 12}, {16, 16, 16, 12}};
  for (const std::vector<std::int64_t>& of_ranks : columns) {
    run_ranks(folder_.path(), spread(static_cast<std::int32_t>(of_ranks.size())), options_,
              [&](const RankPlan& plan, const TestDecoder& t) {
                EXPECT_EQ(t.decoder->weight_bytes().embedding,
                          whole / 60 * of_ranks[static_cast<std::size_t>(plan.rank)]);
              });
  }
}

INSTANTIATE_TEST_SUITE_P(Tied, RankEnds, ::testing::Bool());

}  // namespace
}  // namespace sluice::testing
