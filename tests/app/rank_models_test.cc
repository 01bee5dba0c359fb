// Whole models opened, loaded and run over ranks in one process, as the commands do it: every rank its own part.
//
// With all-to-all and attention whole on every rank, log-probabilities and logits have the bits of one rank. Where
// partial sums are added, float32 shows that nothing but the order of sums differs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include "app/parallel_choice.h"
#include "app/quantize.h"
#include "app/wiring.h"
#include "core/error.h"
#include "model/test_decoder.h"

namespace sluice::app {
namespace {

using sluice::testing::bundled_model;

// Of a log-probability in float32. On these texts, which are not what the models were trained for, sums in another
// order gave up to 2.1e-5 at log-probabilities of -8.
constexpr double kMostDifference = 1e-4;

// What came of a request.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs, last_logits;
  bool operator==(const Answer&) const = default;
};
void PrintTo(const Answer& a, std::ostream* out) { *out << ::testing::PrintToString(a.tokens); }

LoadOptions load_options() {
  LoadOptions o;
  o.threads = 1;
  o.engine.context_length = 256;
  o.engine.max_sequences = 8;
  o.engine.max_batch_tokens = 96;
  return o;
}

std::vector<engine::Request> requests(const LoadedModel& model) {
  const char* texts[] = {
      "Question: Kira has 3 tickets. Wes has 4 tickets. How many?\nAnswer:", "Ivy buys 7 packs of cards.",
      "Question:", "Gus gives 11 cards to Ivy and then 5 more. How many cards does Gus give away?"};
  std::vector<engine::Request> list;
  for (const char* text : texts) {
    engine::Request& r = list.emplace_back();
    r.prompt = model.tokenizer->encode(text, true, true);
    r.max_new_tokens = 12;
    r.prompt_logprobs = r.last_logits = true;
  }
  return list;
}

// `load` may be nullptr.
std::vector<Answer> answers(const LoadedModel& model, engine::ExpertLoad* load) {
  const auto engine = model.make_engine();
  std::map<engine::RequestId, Answer> by_id;
  for (engine::Request& r : requests(model)) by_id[engine->submit(std::move(r))];
  while (!engine->idle()) {
    for (const engine::Event& e : engine->step()) {
      Answer& a = by_id[e.id];
      if (e.token >= 0) a.tokens.push_back(e.token), a.logprobs.push_back(e.logprob);
      if (!e.prompt_logprobs.empty()) a.prompt_logprobs = e.prompt_logprobs;
      if (!e.last_logits.empty()) a.last_logits = e.last_logits;
    }
  }
  if (load != nullptr) *load = engine->expert_load();
  std::vector<Answer> list;
  for (auto& [id, a] : by_id) list.push_back(std::move(a));
  return list;
}

std::vector<Answer> one_rank(const std::string& folder, const LoadOptions& options = load_options(),
                             engine::ExpertLoad* load = nullptr) {
  return answers(load_model(open_model(folder, options, {}), [](const Progress&) {}, {}), load);
}

// Passes everything on and counts the bytes that a rank sends of rows, ids and weights.
class CountingGroup final : public Group {
 public:
  CountingGroup(std::unique_ptr<Group> inner, std::int64_t& sent) : inner_(std::move(inner)), sent_(sent) {}
  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void barrier() override { inner_->barrier(); }
  void broadcast(void* data, std::size_t bytes, int root, Stream s) override {
    inner_->broadcast(data, bytes, root, s);
  }
  void all_reduce_sum(float* data, std::size_t count, Stream s) override { inner_->all_reduce_sum(data, count, s); }
  void all_gather(const void* send, void* receive, const RankParts& parts, Stream s) override {
    const std::int64_t bytes = parts.counts[rank()];
    if (bytes > static_cast<std::int64_t>(sizeof(std::int64_t))) sent_ += bytes;  // not the counts
    inner_->all_gather(send, receive, parts, s);
  }
  void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream s) override {
    inner_->reduce_scatter_sum(send, receive, parts, s);
  }
  void start_all_to_all(const AllToAll& exchange, Stream s) override { inner_->start_all_to_all(exchange, s); }
  void finish_all_to_all(Stream s) override { inner_->finish_all_to_all(s); }
  std::unique_ptr<Group> split(int color) override { return inner_->split(color); }
  double set_timeout(double seconds) override { return inner_->set_timeout(seconds); }
  std::string gone_peers() const override { return inner_->gone_peers(); }

 private:
  std::unique_ptr<Group> inner_;
  std::int64_t& sent_;
};

// What is wanted beside answers.
struct Counted {
  engine::ExpertLoad load;
  std::vector<std::int64_t> sent;  // [ranks] bytes of rows, ids and weights that were gathered
  std::string ranks;               // of the start line
};

std::vector<Answer> over_ranks(const std::string& folder, const ParallelRequest& request,
                               const LoadOptions& options = load_options(), Counted* counted = nullptr) {
  const ParallelSizes sizes = choose_parallel(request).sizes;
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(sizes.tp, 60);
  std::vector<std::string> errors(groups.size());
  std::vector<std::int64_t> sent(groups.size(), 0);
  for (std::size_t r = 0; r < groups.size(); ++r) {
    groups[r] = std::make_unique<CountingGroup>(std::move(groups[r]), sent[r]);
  }
  std::vector<Answer> result;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        LoadOptions mine = options;
        mine.world = groups[r].get();
        mine.parallel = sizes;
        mine.a2a = request.a2a;
        const LoadedModel model = load_model(open_model(folder, mine, {}), [](const Progress&) {}, {});
        sent[r] = 0;  // what was settled before loading
        if (r == 0) result = answers(model, counted != nullptr ? &counted->load : nullptr);
        if (r == 0 && counted != nullptr) counted->ranks = model.facts.ranks;
        if (r > 0) model.follow();
      } catch (const Error& e) {
        errors[r] = e.what();
      }
      groups[r].reset();
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  if (counted != nullptr) counted->sent = sent;
  return result;
}

void expect_close(const std::vector<Answer>& found, const std::vector<Answer>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    ASSERT_EQ(found[i].prompt_logprobs.size(), expected[i].prompt_logprobs.size());
    for (std::size_t k = 0; k < found[i].prompt_logprobs.size(); ++k) {
      EXPECT_NEAR(found[i].prompt_logprobs[k], expected[i].prompt_logprobs[k], kMostDifference) << i << " " << k;
    }
  }
}

class BundledModels : public ::testing::TestWithParam<const char*> {};

TEST_P(BundledModels, AllToAllOfWholeAttentionHasTheBitsOfOneRank) {
  const std::string folder = bundled_model(GetParam());
  const std::vector<Answer> expected = one_rank(folder);
  EXPECT_EQ(expected[0].tokens.size(), 12u);
  for (const std::int32_t ranks : {2, 3}) {
    const ParallelRequest r{.tp = ranks, .dp = ranks, .enable_dp_attention = true, .a2a = "alltoall"};
    EXPECT_EQ(over_ranks(folder, r), expected) << ranks;
  }
}

TEST_P(BundledModels, PartialSumsGiveTheAnswersOfOneRank) {
  const std::string folder = bundled_model(GetParam());
  LoadOptions exact = load_options();
  exact.dtype = "float32";
  const std::vector<Answer> expected = one_rank(folder, exact);
  const auto check = [&](const ParallelRequest& r) { expect_close(over_ranks(folder, r, exact), expected); };
  check({.tp = 2});
  check({.tp = 4, .ep = 2});
  check({.tp = 4, .ep = 4, .dp = 2, .enable_dp_attention = true});
  check({.tp = 4, .dp = 2, .enable_dp_attention = true, .a2a = "alltoall"});
}

// Every (token, expert) pair is counted once in `choices`, whichever group the token was of, and once by each rank that
// has a piece of the expert.
void expect_load(const engine::ExpertLoad& found, const engine::ExpertLoad& one, const ParallelSizes& sizes) {
  EXPECT_EQ(found.tokens, one.tokens);
  ASSERT_EQ(found.layers.size(), one.layers.size());
  for (std::size_t l = 0; l < one.layers.size(); ++l) {
    const engine::LayerLoad& layer = found.layers[l];
    EXPECT_EQ(layer.choices, one.layers[l].choices);
    EXPECT_TRUE(one.layers[l].ranks.empty());
    ASSERT_EQ(std::ssize(layer.ranks), sizes.tp);
    std::vector<std::int64_t> sums(layer.choices.size(), 0);
    for (const engine::RankLoad& rank : layer.ranks) {
      for (std::size_t s = 0; s < rank.rows.size(); ++s) {
        sums.at(static_cast<std::size_t>(layer.expert_of.at(static_cast<std::size_t>(rank.first_slot) + s))) +=
            rank.rows[s];
      }
    }
    for (std::size_t e = 0; e < sums.size(); ++e) {
      EXPECT_EQ(sums[e], layer.choices[e] * (sizes.tp / sizes.ep)) << "expert " << e;
    }
  }
}

TEST(RankModels, LoadOfExpertsIsCountedOnce) {
  const std::string folder = bundled_model("qwen3_moe");
  LoadOptions exact = load_options();
  exact.dtype = "float32";
  engine::ExpertLoad one;
  Counted many;
  one_rank(folder, exact, &one);
  ASSERT_GT(one.tokens, 48);
  const auto check = [&](const ParallelRequest& r) {
    over_ranks(folder, r, exact, &many);
    expect_load(many.load, one, choose_parallel(r).sizes);
  };
  check({.tp = 2, .ep = 2});
  check({.tp = 4, .ep = 2});
  check({.tp = 3, .ep = 3});  // 6, 5 and 5 experts
  check({.tp = 2, .ep = 2, .dp = 2, .enable_dp_attention = true});
  check({.tp = 4, .ep = 2, .dp = 2, .enable_dp_attention = true});
  check({.tp = 4, .dp = 2, .enable_dp_attention = true, .a2a = "alltoall"});
}

// qwen3_moe in NVFP4 with calibrated input scales.
class Nvfp4RankModels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::filesystem::remove_all(folder());  // of a process that was killed, whose number came again
    QuantizeOptions q;
    q.source = bundled_model("qwen3_moe");
    q.out = folder();
    q.format = "nvfp4";
    q.calibrate = bundled_model("word_problems.shots.jsonl");
    q.load.threads = 1;
    quantize(q, [](const Progress&) {}, {});
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }
  static std::string folder() { return ::testing::TempDir() + std::to_string(getpid()) + "rank_models_nvfp4"; }
};

TEST_F(Nvfp4RankModels, AllToAllHasTheBitsOfOneRank) {
  LoadOptions options = load_options();
  for (const char* backend : {"flashinfer_cutedsl", "flashinfer_cutlass"}) {
    options.moe_runner_backend = backend;
    const ParallelRequest r{.tp = 2, .dp = 2, .enable_dp_attention = true, .a2a = "alltoall"};
    EXPECT_EQ(over_ranks(folder(), r, options), one_rank(folder(), options)) << backend;
  }
}

// A row of 256 takes 512 bytes in bf16, 128 + 16 in NVFP4; 4 ids and 4 weights are 32 bytes more.
constexpr std::int64_t kPlainRecord = 512 + 32, kCodesRecord = 128 + 16 + 32;

TEST_F(Nvfp4RankModels, GatheredRowsHaveTheSameBitsInNvfp4AndTakeFewerBytes) {
  LoadOptions options = load_options();
  for (const char* backend : {"flashinfer_cutedsl", "flashinfer_cutlass"}) {
    for (const std::int32_t ep : {1, 2}) {
      options.moe_runner_backend = backend;
      const ParallelRequest r{.tp = 2, .ep = ep, .dp = 2, .enable_dp_attention = true};
      Counted codes, plain;
      options.plain_rows = false;
      const std::vector<Answer> found = over_ranks(folder(), r, options, &codes);
      options.plain_rows = true;
      EXPECT_EQ(found, over_ranks(folder(), r, options, &plain)) << backend << ep;
      EXPECT_NE(codes.ranks.find("gathered in NVFP4"), std::string::npos) << codes.ranks;
      EXPECT_EQ(plain.ranks.find("NVFP4"), std::string::npos) << plain.ranks;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        EXPECT_GT(plain.sent[rank], 0);
        EXPECT_EQ(codes.sent[rank] * kPlainRecord, plain.sent[rank] * kCodesRecord) << backend << ep;
      }
    }
  }
}

// Recipes that quantise no input have nothing to send but bf16.
TEST_F(Nvfp4RankModels, RowsOfWeightOnlyRecipesStayPlain) {
  Counted counted;
  over_ranks(folder(), {.tp = 2, .ep = 2, .dp = 2, .enable_dp_attention = true}, load_options(), &counted);
  EXPECT_EQ(counted.ranks.find("NVFP4"), std::string::npos) << counted.ranks;
}

INSTANTIATE_TEST_SUITE_P(All, BundledModels, ::testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace sluice::app
