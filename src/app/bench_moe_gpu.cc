#include "app/bench_moe_gpu.h"

#include <algorithm>
#include <sstream>

#include "app/bench_layer.h"
#include "app/statistics.h"
#include "core/error.h"
#include "core/file.h"
#include "core/thread_pool.h"

namespace sluice::app {
namespace {

constexpr int kCheckedRows = 4;

int repetitions_for(std::int64_t tokens) { return tokens <= 1024 ? 25 : tokens <= 8192 ? 11 : 7; }

// Architecture section 5 and docs/performance.md: bf16 slot rows, or codes next to a tie.
double error_bound(Recipe recipe) { return recipe == Recipe::bf16 ? 5e-3 : 1.2e-2; }

// The first tokens of a batch.
MoeBatch first_tokens(const MoeBatch& all, std::int64_t tokens) {
  MoeBatch part{tokens, all.hidden, all.top_k, {}, {}, {}};
  part.ids.assign(all.ids.begin(), all.ids.begin() + tokens * all.top_k);
  part.weights.assign(all.weights.begin(), all.weights.begin() + tokens * all.top_k);
  return part;
}

const PeerPoint* find_peer(const std::vector<PeerPoint>& peers, const GpuMoePoint& p) {
  const auto found = std::find_if(peers.begin(), peers.end(), [&](const PeerPoint& peer) {
    return peer.recipe == p.recipe && peer.shape == p.shape && peer.tokens == p.tokens;
  });
  return found == peers.end() ? nullptr : &*found;
}

class GpuBench {
 public:
  GpuBench(const GpuMoeOptions& options, const std::function<void(const GpuMoePoint&)>& each)
      : options_(options),
        each_(each),
        pool_(options.threads > 0 ? options.threads : available_processors()),
        bench_(cuda::make_layer_bench(options.device, &pool_)) {}

  cuda::GpuCeilings ceilings() { return bench_->ceilings(); }

  void layer(const MoeShape& shape, Recipe recipe, std::vector<GpuMoePoint>& points) {
    BenchLayer layer(shape, options_.seed, recipe);
    Problem problem = layer.problem();
    problem.row_invariant = false;
    bench_->load(problem, layer.weights());
    const std::int64_t most = *std::max_element(options_.tokens.begin(), options_.tokens.end());
    const MoeBatch all = layer.batch(most);
    for (const std::int64_t tokens : options_.tokens) {
      points.push_back(point(layer, shape, recipe, all, tokens));
      each_(points.back());
    }
  }

 private:
  GpuMoePoint point(const BenchLayer& layer, const MoeShape& shape, Recipe recipe, const MoeBatch& all,
                    std::int64_t tokens) {
    if (tokens < 1) fail(ErrorCode::usage, "token count " + std::to_string(tokens), "1 or more");
    const MoeBatch batch = first_tokens(all, tokens);
    GpuMoePoint p;
    p.shape = shape.name;
    p.recipe = recipe;
    p.tokens = tokens;
    p.repetitions = repetitions_for(tokens);
    cuda::GpuBatch gpu;
    gpu.hidden = dense_view(static_cast<const void*>(all.rows.data()), DType::bf16, tokens, all.hidden);
    gpu.ids = batch.ids.data();
    gpu.weights = batch.weights.data();
    gpu.top_k = batch.top_k;
    gpu.slots = layer.slots();
    const cuda::GpuTiming timing = bench_->measure(gpu, p.repetitions, kCheckedRows);
    p.error = timing.error;
    p.checked_rows = timing.checked_rows;
    p.kernel = timing.kernel;
    if (!(p.error <= error_bound(recipe))) {
      fail(ErrorCode::check_failed,
           "runner hopper is " + std::to_string(p.error) + " away from the oracle at " + std::to_string(tokens) +
               " tokens of " + p.shape + " (relative L2)",
           "at most " + std::to_string(error_bound(recipe)), "no time is given for a wrong result");
    }
    limits(layer, shape, batch, p);
    std::vector<double> us = timing.us;
    std::sort(us.begin(), us.end());
    p.median_us = us[us.size() / 2];
    p.min_us = us.front();
    p.route_us = timing.route_us;
    p.finalize_us = p.median_us - timing.experts_us;
    p.invariant_us = timing.invariant_us > 0 ? timing.invariant_us : p.median_us;
    return p;
  }

  void limits(const BenchLayer& layer, const MoeShape& shape, const MoeBatch& batch, GpuMoePoint& p) const {
    const double matrices = is_gated(shape.activation) ? 3.0 : 2.0;
    p.active_experts = layer.active_experts(batch);
    p.bytes = p.active_experts * layer.expert_bytes() + 4.0 * static_cast<double>(batch.tokens * shape.hidden);
    p.operations = 2.0 * matrices * static_cast<double>(shape.hidden * shape.intermediate) * layer.local_routes(batch);
    const double memory = p.bytes / (kFloorTbPerS * 1e6), compute = p.operations / (floor_tflop_per_s(p.recipe) * 1e6);
    p.floor_us = std::max(memory, compute);
    p.memory_bound = memory >= compute;
    if (const PeerPoint* peer = find_peer(options_.peers, p); peer != nullptr) {
      p.peer_us = peer->us;
      p.peer_floor_us = peer->floor_us;
    }
  }

  const GpuMoeOptions& options_;
  const std::function<void(const GpuMoePoint&)>& each_;
  ThreadPool pool_;
  std::unique_ptr<cuda::LayerBench> bench_;
};

[[noreturn]] void bad_line(const std::string& path, int line) {
  fail(ErrorCode::bad_input, path + ":" + std::to_string(line) + " is no point", "recipe,shape,tokens,us,floor_us");
}

}  // namespace

double floor_tflop_per_s(Recipe recipe) {
  constexpr double kBf16 = 740.0, kFp8 = 1290.0;
  return recipe == Recipe::bf16 ? kBf16 : kFp8;
}

std::vector<PeerPoint> read_peers(const std::string& path) {
  std::istringstream lines(read_file(path, {"a baseline", 1 << 20}));
  std::vector<PeerPoint> peers;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (number == 1 || line.empty()) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string recipe;
    PeerPoint p;
    if (!(fields >> recipe >> p.shape >> p.tokens >> p.us >> p.floor_us)) bad_line(path, number);
    const std::optional<Recipe> known = recipe_from_name(recipe);
    if (!known || p.us <= 0 || p.floor_us <= 0) bad_line(path, number);
    p.recipe = *known;
    peers.push_back(p);
  }
  return peers;
}

GpuMoeResult bench_moe_gpu(const GpuMoeOptions& options, const std::function<void(const cuda::GpuCeilings&)>& begin,
                           const std::function<void(const GpuMoePoint&)>& each) {
  GpuBench bench(options, each);
  GpuMoeResult result;
  result.ceilings = bench.ceilings();
  begin(result.ceilings);
  for (const Recipe recipe : options.recipes) {
    for (const MoeShape& shape : options.shapes) bench.layer(shape, recipe, result.points);
  }
  return result;
}

}  // namespace sluice::app
