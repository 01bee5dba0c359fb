// Dispatchers over random routings, placements, numbers of ranks and of tokens: every row reaches the rank of each of
// its experts once, and comes home once. Experts are replaced by a stamp of token and expert, in integers that fp32
// adds without rounding, so that sums must be exact.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "comm/rank_threads.h"
#include "core/thread_pool.h"
#include "cpu/backend.h"
#include "dispatch/dispatcher.h"

namespace sluice {
namespace {

constexpr std::int64_t kWidth = 3;

struct World {
  ParallelSizes sizes;
  std::int32_t experts = 1;
  std::int32_t top_k = 1;
  std::vector<std::int32_t> expert_of;             // [slots]
  std::vector<std::int32_t> counts;                // [ep]
  std::vector<std::vector<std::int32_t>> ids;      // [dp] of [T, k], -1 to experts + 1
  std::vector<std::vector<std::int32_t>> weights;  // [dp] of [T, k], 1 to 3

  std::int64_t tokens(std::int32_t group) const {
    return static_cast<std::int64_t>(ids[static_cast<std::size_t>(group)].size()) / top_k;
  }
  // Of the model: tokens of group g start at 100 g + 1.
  static float name(std::int32_t group, std::int64_t token) { return static_cast<float>(100 * group + 1 + token); }
};

void showValue(const World& w, std::ostream& os) {
  os << "tp " << w.sizes.tp << " ep " << w.sizes.ep << " dp " << w.sizes.dp << " a2a " << static_cast<int>(w.sizes.a2a)
     << " E " << w.experts << " k " << w.top_k << " slots ";
  for (const std::int32_t e : w.expert_of) os << e << ' ';
  os << "held ";
  for (const std::int32_t n : w.counts) os << n << ' ';
  for (const auto& group : w.ids) {
    os << "| ";
    for (const std::int32_t id : group) os << id << ' ';
  }
}

std::int32_t divisor(std::int32_t n) {
  std::vector<std::int32_t> all;
  for (std::int32_t d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return *rc::gen::elementOf(all);
}

World any_world() {
  World w;
  ParallelSizes s;
  s.tp = *rc::gen::inRange(1, 7);
  s.dp = divisor(s.tp);
  s.dp_attention = s.dp > 1;
  s.ep = divisor(s.tp);
  s.a2a = *rc::gen::element(MoeA2a::none, MoeA2a::alltoall);
  w.sizes = resolve(s);
  w.experts = *rc::gen::inRange(w.sizes.ep, w.sizes.ep + 8);
  w.top_k = *rc::gen::inRange(1, 6);
  w.expert_of.resize(static_cast<std::size_t>(w.experts));
  std::iota(w.expert_of.begin(), w.expert_of.end(), 0);
  for (std::int32_t copies = *rc::gen::inRange(0, 5); copies > 0; --copies) {
    w.expert_of.push_back(*rc::gen::inRange(0, w.experts));
  }
  if (*rc::gen::arbitrary<bool>()) {
    for (std::size_t i = w.expert_of.size(); i > 1; --i) {
      std::swap(w.expert_of[i - 1], w.expert_of[*rc::gen::inRange<std::size_t>(0, i)]);
    }
  }
  w.counts.assign(static_cast<std::size_t>(w.sizes.ep), 0);
  for (std::size_t s2 = 0; s2 < w.expert_of.size(); ++s2) {
    ++w.counts[*rc::gen::inRange<std::size_t>(0, w.counts.size())];  // a rank may hold nothing
  }
  for (std::int32_t g = 0; g < w.sizes.dp; ++g) {
    const auto routes = static_cast<std::size_t>(*rc::gen::inRange(0, 10) * w.top_k);
    w.ids.push_back(*rc::gen::container<std::vector<std::int32_t>>(routes, rc::gen::inRange(-1, w.experts + 2)));
    w.weights.push_back(*rc::gen::container<std::vector<std::int32_t>>(routes, rc::gen::inRange(1, 4)));
  }
  return w;
}

// What ranks saw, as (rank, token's name, expert).
struct Seen {
  std::mutex mutex;
  std::multiset<std::tuple<std::int32_t, float, std::int32_t>> routes;
  std::multiset<std::pair<std::int32_t, float>> rows;  // (rank, token)
};

// The slot row of a token and an expert.
void stamp(float token, std::int32_t expert, float* row) {
  row[0] = token;
  row[1] = static_cast<float>(expert + 1);
  row[2] = 1.0f;
}

std::vector<float> expected(const World& w, std::int32_t group) {
  std::vector<float> out(static_cast<std::size_t>(w.tokens(group) * kWidth));
  const auto g = static_cast<std::size_t>(group);
  for (std::size_t r = 0; r < w.ids[g].size(); ++r) {
    const std::int32_t e = w.ids[g][r];
    if (e < 0 || e >= w.experts) continue;
    const std::size_t t = r / static_cast<std::size_t>(w.top_k);
    float row[kWidth];
    stamp(World::name(group, static_cast<std::int64_t>(t)), e, row);
    for (std::size_t c = 0; c < kWidth; ++c) out[t * kWidth + c] += static_cast<float>(w.weights[g][r]) * row[c];
  }
  return out;
}

// The experts of a rank. Of several pieces of an expert the first gives all of it.
void run_stamps(const Dispatched& d, const World& w, const RankPlan& plan, const TensorView& out, Seen& seen) {
  const std::scoped_lock lock(seen.mutex);
  for (std::int64_t t = 0; t < d.hidden.rows; ++t) {
    const float token = d.hidden.row<float>(t)[0];
    seen.rows.emplace(plan.rank, token);
    float sum[kWidth] = {};
    for (std::int64_t s = 0; s < d.top_k; ++s) {
      const std::int64_t r = t * d.top_k + s;
      float row[kWidth] = {};
      if (d.slots.contains(d.ids[r])) {
        const std::int32_t expert = w.expert_of[static_cast<std::size_t>(raw(d.ids[r]))];
        seen.routes.emplace(plan.rank, token, expert);
        if (plan.expert.index == 0) stamp(token, expert, row);
      }
      for (std::size_t c = 0; c < kWidth; ++c) sum[c] += d.weights[r] * row[c];
      if (d.routes) std::copy_n(row, kWidth, d.routes.row<float>(r));
    }
    const TensorView& to = d.sum ? d.sum : out;
    if (!d.routes) std::copy_n(sum, kWidth, to.row<float>(t));
  }
}

std::vector<float> run_rank(const World& w, Group& world, Seen& seen) {
  DispatcherOptions o;
  o.plan = plan_rank(w.sizes, world.rank());
  const std::unique_ptr<Group> attention = world.split(o.plan.dp.index);
  ThreadPool pool(1);
  cpu::CpuBackend backend(pool, cpu::Isa::scalar);
  o.world = &world;
  o.attention = attention.get();
  o.backend = &backend;
  o.recipe = Recipe::f32;
  std::vector<LogicalId> expert_of;
  for (const std::int32_t e : w.expert_of) expert_of.push_back(LogicalId{e});
  o.placement = std::make_shared<const Placement>(expert_of, w.counts, w.experts);
  const auto dispatcher = make_dispatcher(o);

  const auto g = static_cast<std::size_t>(o.plan.dp.index);
  const std::int64_t tokens = w.tokens(o.plan.dp.index);
  std::vector<float> hidden(static_cast<std::size_t>(tokens * kWidth));
  for (std::int64_t t = 0; t < tokens; ++t) hidden[t * kWidth] = World::name(o.plan.dp.index, t);
  std::vector<LogicalId> ids;
  for (const std::int32_t id : w.ids[g]) ids.push_back(LogicalId{id});
  const std::vector<float> weights(w.weights[g].begin(), w.weights[g].end());
  std::vector<float> out(hidden.size(), -1.0f);
  const TensorView view = dense_view(out.data(), DType::f32, tokens, kWidth);

  std::int64_t most = 0;
  for (std::int32_t other = 0; other < w.sizes.dp; ++other) most = std::max(most, w.tokens(other));
  const Buffer memory = host_buffer(dispatcher->workspace_bytes(most, w.top_k, kWidth) + 1);
  Workspace workspace(memory.data(), memory.bytes() - 1);
  const Dispatched d =
      dispatcher->dispatch({dense_view(static_cast<const void*>(hidden.data()), DType::f32, tokens, kWidth), ids.data(),
                            weights.data(), w.top_k},
                           workspace, {});
  if (d.hidden.rows > dispatcher->most_rows(most)) throw std::logic_error("more rows than most_rows");
  run_stamps(d, w, o.plan, view, seen);
  int calls = 0;
  dispatcher->combine(view, [&] { ++calls; }, workspace, {});
  if (calls != 1) throw std::logic_error("meanwhile was not called once");
  return out;
}

std::vector<std::vector<float>> run_world(const World& w, Seen& seen) {
  std::vector<std::vector<float>> out(static_cast<std::size_t>(w.sizes.tp));
  testing::on_rank_threads(make_thread_groups(w.sizes.tp, 30.0),
                           [&](std::size_t r, std::unique_ptr<Group>& group) { out[r] = run_rank(w, *group, seen); });
  return out;
}

// Every valid route of the world, with multiplicity.
std::multiset<std::pair<float, std::int32_t>> routes_of(const World& w) {
  std::multiset<std::pair<float, std::int32_t>> routes;
  for (std::int32_t g = 0; g < w.sizes.dp; ++g) {
    const auto& ids = w.ids[static_cast<std::size_t>(g)];
    for (std::size_t r = 0; r < ids.size(); ++r) {
      if (ids[r] < 0 || ids[r] >= w.experts) continue;
      routes.emplace(World::name(g, static_cast<std::int64_t>(r) / w.top_k), ids[r]);
    }
  }
  return routes;
}

RC_GTEST_PROP(Dispatchers, RowsReachTheirExpertsOnceAndComeHomeOnce, ()) {
  const World w = any_world();
  RC_LOG() << [&] {
    std::ostringstream text;
    showValue(w, text);
    return text.str();
  }();
  Seen seen;
  const std::vector<std::vector<float>> out = run_world(w, seen);
  for (std::int32_t r = 0; r < w.sizes.tp; ++r) {
    RC_ASSERT(out[static_cast<std::size_t>(r)] == expected(w, plan_rank(w.sizes, r).dp.index));
  }
  // Each route is computed by all pieces of one copy of its expert, and by nobody else.
  std::multiset<std::pair<float, std::int32_t>> computed;
  for (const auto& [rank, token, expert] : seen.routes) {
    if (plan_rank(w.sizes, rank).expert.index == 0) computed.emplace(token, expert);
  }
  RC_ASSERT(computed == routes_of(w));
  RC_ASSERT(seen.routes.size() == computed.size() * static_cast<std::size_t>(w.sizes.tp / w.sizes.ep));
  // A token comes to a rank at most once, with alltoall only to the ranks of its experts.
  for (const auto& row : seen.rows) RC_ASSERT(seen.rows.count(row) == 1u);
  if (dispatch_kind(w.sizes) != DispatchKind::alltoall) return;
  std::set<std::pair<std::int32_t, float>> wanted;
  for (const auto& [rank, token, expert] : seen.routes) wanted.emplace(rank, token);
  RC_ASSERT(wanted.size() == seen.rows.size());
}

class FixedSeed : public ::testing::Environment {
 public:
  // The same cases in every run unless somebody asks for others.
  void SetUp() override { setenv("RC_PARAMS", "seed=31415 max_success=400", /*overwrite=*/0); }
};
const ::testing::Environment* const registered = ::testing::AddGlobalTestEnvironment(new FixedSeed);

}  // namespace
}  // namespace sluice
