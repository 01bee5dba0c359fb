// sluice layer: one MoE block alone, on given hidden states and optionally given routes. Ranks are threads of this
// process, each with its part of the weights.
#include <fmt/core.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "app/parallel_choice.h"
#include "app/wiring.h"
#include "cli/commands.h"
#include "cli/layer_pass.h"
#include "cli/session.h"
#include "comm/group.h"
#include "core/error.h"
#include "moe/parallel.h"
#include "moe/placement.h"

namespace sluice::cli {
namespace {

// --ep alone makes as many ranks.
Options with_ranks(Options o) {
  if (o.tp == 1) o.tp = o.ep;
  return o;
}

void check_options(const Options& o) {
  if (o.tp == 1) return;
  if (o.dump_stages) {
    fail(ErrorCode::unsupported, fmt::format("--dump-stages with {} ranks", o.tp), "one rank",
         "the stages of one rank are those of all ranks together");
  }
  if (o.device.starts_with("cuda")) {
    fail(ErrorCode::unsupported, fmt::format("--device {} with {} ranks", o.device, o.tp), "--device cpu",
         "the ranks of this command are threads");
  }
}

// Sizes that no layer can be cut into are refused before so many ranks are made.
void check_sizes(const Options& o, const ParallelSizes& sizes) {
  const app::ModelFiles files = app::open_model_files(o.model);
  for (const model::BlockSpec& block : files.config.layers) {
    if (block.moe() == nullptr) continue;
    Placement::contiguous(block.moe()->routing.total_experts(), sizes.ep);
    const std::int64_t pieces = sizes.tp / sizes.ep, inner = block.moe()->intermediate;
    if (pieces <= inner) continue;
    fail(ErrorCode::unsupported, fmt::format("{} pieces of an expert whose I is {}", pieces, inner),
         fmt::format("at most {}", inner), "choose a smaller --tp or a larger --ep");
  }
}

// Runs body(rank, world) on a thread each and rethrows what failed first; the others fail because of it.
void run_threads(std::vector<std::unique_ptr<Group>> groups, const std::function<void(std::size_t, Group&)>& body) {
  std::exception_ptr first;
  std::atomic_flag failed;
  const auto guarded = [&](std::size_t r) {
    try {
      const std::unique_ptr<Group> world = std::move(groups[r]);  // gone when this rank is
      body(r, *world);
    } catch (...) {
      if (!failed.test_and_set()) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  std::string problem;
  try {
    while (threads.size() < groups.size()) threads.emplace_back(guarded, threads.size());
  } catch (const std::system_error& e) {
    problem = e.what();
    for (std::size_t r = threads.size(); r < groups.size(); ++r) groups[r].reset();  // nobody waits for them
  }
  for (std::thread& t : threads) t.join();
  if (!problem.empty()) {
    fail(ErrorCode::resources, fmt::format("a thread for rank {} of {}: {}", threads.size(), groups.size(), problem),
         "a thread a rank", "choose a smaller --tp or --ep, or raise the limits of processes and memory");
  }
  if (first) std::rethrow_exception(first);
}

// NaNs are the same too when their bits are.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The results of the dp groups, one after the other. All ranks of a group must have the same.
LayerResult merge(const std::vector<LayerResult>& results, const ParallelSizes& sizes) {
  LayerResult all = results.front();
  for (std::int32_t r = 1; r < sizes.tp; ++r) {
    const LayerResult& result = results[static_cast<std::size_t>(r)];
    const RankPlan plan = plan_rank(sizes, r);
    if (plan.attention.index == 0) {
      all.tokens += result.tokens;
      append(all.output, result.output);
      append(all.ids, result.ids);
      append(all.weights, result.weights);
      continue;
    }
    const std::int32_t leader = r - plan.attention.index;
    if (!same_bits(result.output, results[static_cast<std::size_t>(leader)].output)) {
      fail(ErrorCode::check_failed, fmt::format("rank {} and rank {} end with different outputs", leader, r),
           "the same bits on all ranks that have the same tokens");
    }
  }
  return all;
}

LayerResult run_on_ranks(const Options& options, const ParallelSizes& sizes, const LogSink& log) {
  check_sizes(options, sizes);
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(sizes.tp, options.dist_timeout);
  std::vector<LayerResult> results(groups.size());
  run_threads(std::move(groups), [&](std::size_t r, Group& world) {
    Options own = options;
    own.world = &world;
    results[r] = run_layer(own, r == 0 ? log : LogSink());
  });
  return merge(results, sizes);
}

}  // namespace

int layer_command(const Options& given) {
  Terminal terminal(given.quiet);
  const Options options = with_ranks(given);
  check_options(options);
  const ParallelSizes sizes = parallel_choice(options).sizes;
  const LayerResult result =
      sizes.tp == 1 ? run_layer(options, terminal.log()) : run_on_ranks(options, sizes, terminal.log());
  write_layer(result, options.out);
  const std::string ranks = app::describe(sizes);
  terminal.note(fmt::format("layer {}: {} tokens, recipe {}, runner {}{} > {}", options.layer, result.tokens,
                            result.recipe, result.runner, ranks.empty() ? "" : ", " + ranks, options.out));
  return 0;
}

}  // namespace sluice::cli
