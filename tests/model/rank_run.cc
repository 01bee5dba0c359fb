#include "model/rank_run.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "comm/group.h"
#include "core/error.h"

namespace sluice::testing {
namespace {

constexpr double kTimeoutSeconds = 120;

struct RankThread {
  std::unique_ptr<Group> world;
  RankPlan plan;
  std::exception_ptr error;
  bool is_cause = false;  // and no other rank's absence
  std::thread thread;
};

void run_rank(RankThread& rank, const std::string& folder, TestDecoderOptions options,
              const std::function<void(const RankPlan&, const TestDecoder&)>& run) {
  try {
    const std::unique_ptr<Group> attention = rank.world->split(rank.plan.dp.index);
    options.plan = rank.plan;
    options.world = rank.world.get();
    options.attention = attention.get();
    options.threads = 1;
    run(rank.plan, load_test_decoder(folder, options));
  } catch (const Error& e) {
    rank.error = std::current_exception();
    rank.is_cause = std::string(e.what()).find("a rank is gone") == std::string::npos;
  } catch (...) {
    rank.error = std::current_exception();
  }
  rank.world.reset();  // the others learn of it
}

}  // namespace

void run_ranks(const std::string& folder, const ParallelSizes& sizes, const TestDecoderOptions& options,
               const std::function<void(const RankPlan&, const TestDecoder&)>& run) {
  const ParallelSizes resolved = resolve(sizes);
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(resolved.tp, kTimeoutSeconds);
  std::vector<RankThread> ranks(static_cast<std::size_t>(resolved.tp));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankThread& rank = ranks[r];
    rank.world = std::move(groups[r]);
    rank.plan = plan_rank(resolved, static_cast<std::int32_t>(r));
    rank.thread = std::thread([&] { run_rank(rank, folder, options, run); });
  }
  for (RankThread& rank : ranks) rank.thread.join();
  std::stable_partition(ranks.begin(), ranks.end(), [](const RankThread& rank) { return rank.is_cause; });
  for (const RankThread& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
  }
}

std::vector<std::vector<float>> rank_logits(const std::string& folder, const ParallelSizes& sizes,
                                            const TestDecoderOptions& options, const std::vector<std::int32_t>& prompt,
                                            std::int64_t chunk) {
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(sizes.tp));
  run_ranks(folder, sizes, options, [&](const RankPlan& plan, const TestDecoder& t) {
    logits[static_cast<std::size_t>(plan.rank)] = prompt_logits(*t.decoder, prompt, chunk);
  });
  return logits;
}

std::string sizes_text(const ParallelSizes& s) {
  std::string text = "tp " + std::to_string(s.tp) + ", ep " + std::to_string(s.ep);
  if (s.dp > 1) text += ", dp " + std::to_string(s.dp);
  if (s.dense_tp > 0) text += ", dense tp " + std::to_string(s.dense_tp);
  return text;
}

}  // namespace sluice::testing
