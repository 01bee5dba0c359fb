// Messages between ranks as bytes: round trips, and every kind of damage refused.
#include "engine/step_message.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"

namespace sluice::engine {
namespace {

// Two groups, the first with two rows and edits, the second idle.
struct Sample {
  std::vector<LogitEdit> first = {{7, 1.5f, -0.25f}, {9, 1.0f, 2.0f}};
  std::vector<LogitEdit> second = {{11, 2.0f, 0.0f}};
  StepMessage message{StepCommand::step};

  Sample() {
    GroupStep g;
    g.plan.number = 3;
    g.plan.max_blocks = 1;
    g.plan.max_context = 3;
    g.plan.sample_rows = 1;
    g.plan.token_ids = {5, 6, 7};
    g.plan.positions = {0, 1, 2};
    g.plan.query_start = {0, 3};
    g.plan.block_table = {4};
    g.plan.logit_rows = {2, 0, 1};
    g.plan.sequences = {{9, 0, 3, 0, 1, 2, 0}};
    g.params = {{0.5f, 40, 0.9f, 0.1f, 1ull << 60, 12, first.data(), 2, -1, 5}, {}, {}};
    g.params[2].edits = second.data();
    g.params[2].edit_count = 1;
    g.params[2].given = 77;
    g.copy_rows = {0, 2};
    message.groups.push_back(std::move(g));
    GroupStep& idle = message.groups.emplace_back();
    idle.plan.query_start = {0};
  }
};

void expect_same(const SampleParams& a, const SampleParams& b) {
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.given, b.given);
  EXPECT_EQ(a.top, b.top);
  ASSERT_EQ(a.edit_count, b.edit_count);
  for (std::int64_t i = 0; i < a.edit_count; ++i) {
    EXPECT_EQ(a.edits[i].token, b.edits[i].token);
    EXPECT_EQ(a.edits[i].divisor, b.edits[i].divisor);
    EXPECT_EQ(a.edits[i].add, b.edits[i].add);
  }
}

TEST(StepMessage, RoundTripsThroughBytes) {
  const Sample sample;
  const StepMessage read = message_from_bytes(to_bytes(sample.message));
  EXPECT_EQ(read.command, StepCommand::step);
  ASSERT_EQ(read.groups.size(), 2u);
  for (std::size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(read.groups[g].plan, sample.message.groups[g].plan);
    EXPECT_EQ(read.groups[g].copy_rows, sample.message.groups[g].copy_rows);
    ASSERT_EQ(read.groups[g].params.size(), sample.message.groups[g].params.size());
    for (std::size_t i = 0; i < read.groups[g].params.size(); ++i) {
      expect_same(read.groups[g].params[i], sample.message.groups[g].params[i]);
    }
  }
}

TEST(StepMessage, CommandsHaveNoGroups) {
  for (const StepCommand c : {StepCommand::nothing, StepCommand::report_load, StepCommand::stop}) {
    const StepMessage read = message_from_bytes(to_bytes(StepMessage(c)));
    EXPECT_EQ(read.command, c);
    EXPECT_TRUE(read.groups.empty());
  }
}

template <class Read>
void refuse_truncations(const std::vector<std::byte>& bytes, Read read) {
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(read(std::span(bytes).first(n)), Error) << n;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(read(longer), Error);
}

// A changed byte gives an error or another message, never a crash or a huge allocation.
template <class Read>
void survive_flips(const std::vector<std::byte>& bytes, Read read) {
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      std::vector<std::byte> changed = bytes;
      changed[i] ^= static_cast<std::byte>(mask);
      try {
        read(changed);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::bad_input);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 12);  // at least whatever hits the beginning and the lengths
}

StepResult sample_result() {
  StepResult r;
  r.tokens = {4, -1};
  r.logprobs = {-0.5f, 0.0f};
  r.top_width = 2;
  r.top_tokens = {4, 8, -1, -1};
  r.top_logprobs = {-0.5f, -1.5f, 0.0f, 0.0f};
  r.logits = {1.0f, 2.0f, 3.0f};
  r.weight_bytes = 12345678901;
  r.execute_seconds = 0.25;
  r.sample_seconds = 0.125;
  return r;
}

ExpertLoad sample_load() {
  return {6, {{1, {3, 0, 9}, {0, 1, 2, 0}, {{0, {2, 0}}, {2, {9, 1}}}}, {2, {5, 5, 2}, {}, {}}}};
}

TEST(StepMessage, RefusesDamage) {
  const Sample sample;
  const auto message = [](std::span<const std::byte> b) { message_from_bytes(b); };
  refuse_truncations(to_bytes(sample.message), message);
  survive_flips(to_bytes(sample.message), message);
  const auto result = [](std::span<const std::byte> b) { result_from_bytes(b); };
  refuse_truncations(to_bytes(sample_result()), result);
  survive_flips(to_bytes(sample_result()), result);
  const auto load = [](std::span<const std::byte> b) { load_from_bytes(b); };
  refuse_truncations(to_bytes(sample_load()), load);
  survive_flips(to_bytes(sample_load()), load);
}

TEST(StepMessage, RefusesListsThatContradictEachOther) {
  const auto refused = [](auto change) {
    Sample s;
    change(s.message.groups[0]);
    EXPECT_THROW(message_from_bytes(to_bytes(s.message)), Error);
  };
  refused([](GroupStep& g) { g.params.pop_back(); });
  refused([](GroupStep& g) { g.copy_rows = {3}; });
  refused([](GroupStep& g) { g.copy_rows = {-1}; });
  refused([](GroupStep& g) { g.params[0].top = kMostTop + 1; });
  refused([](GroupStep& g) { g.plan.positions.pop_back(); });
  Sample negative;
  negative.first[0].token = -1;
  EXPECT_THROW(message_from_bytes(to_bytes(negative.message)), Error);
}

TEST(StepMessage, ResultsAndLoadsRoundTrip) {
  const StepResult r = sample_result();
  const StepResult read = result_from_bytes(to_bytes(r));
  EXPECT_EQ(read.tokens, r.tokens);
  EXPECT_EQ(read.logprobs, r.logprobs);
  EXPECT_EQ(read.top_width, r.top_width);
  EXPECT_EQ(read.top_tokens, r.top_tokens);
  EXPECT_EQ(read.top_logprobs, r.top_logprobs);
  EXPECT_EQ(read.logits, r.logits);
  EXPECT_EQ(read.weight_bytes, r.weight_bytes);
  EXPECT_EQ(read.execute_seconds, r.execute_seconds);
  EXPECT_EQ(read.sample_seconds, r.sample_seconds);
  const ExpertLoad load = load_from_bytes(to_bytes(sample_load()));
  EXPECT_EQ(load.tokens, 6);
  ASSERT_EQ(load.layers.size(), 2u);
  EXPECT_EQ(load.layers[1].layer, 2);
  EXPECT_EQ(load.layers[1].choices, (std::vector<std::int64_t>{5, 5, 2}));
  EXPECT_TRUE(load.layers[1].expert_of.empty() && load.layers[1].ranks.empty());
  EXPECT_EQ(load.layers[0].expert_of, (std::vector<std::int32_t>{0, 1, 2, 0}));
  ASSERT_EQ(load.layers[0].ranks.size(), 2u);
  EXPECT_EQ(load.layers[0].ranks[1].first_slot, 2);
  EXPECT_EQ(load.layers[0].ranks[1].rows, (std::vector<std::int64_t>{9, 1}));
}

}  // namespace
}  // namespace sluice::engine
