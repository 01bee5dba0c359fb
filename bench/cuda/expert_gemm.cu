// Checks and times the expert GEMM kernels alone, without the host side of the runner.
//   ninja -C build/cuda sluice_moe sluice_cuda_kernels; cd build/cuda/src; R=../../..
//   nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a -I $R/src $R/bench/cuda/expert_gemm.cu \
//        $R/src/cuda/sm90/plan.cc cuda/libsluice_cuda_kernels.a moe/libsluice_moe.a \
//        numerics/libsluice_numerics.a core/libsluice_core.a -o expert_gemm
//   ./expert_gemm check && ./expert_gemm time
// Prints one line a case; exit code 1 if a result is wrong. A time is the median of graph replays
// [read 256 MB, event, both GEMMs, event].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "expert_run.cuh"

namespace sluice::bench {
namespace {

__device__ std::uint32_t sink;

__global__ void read_all(const uint4* p, std::size_t n) {
  std::uint32_t acc = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint4 v = p[i];
    acc ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (acc == 0x12345) sink = acc;
}

__global__ void nothing() {}

struct Timer {
  static constexpr std::size_t kFlushBytes = 256u << 20;
  DeviceArray<std::uint8_t> flush{kFlushBytes};
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;

  Timer() {
    check(cudaStreamCreate(&stream), "stream");
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    check(cudaMemset(flush.p, 1, kFlushBytes), "flush");
  }

  template <typename Prepare, typename Body>
  double median_us(int replays, Prepare prepare, Body body) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    read_all<<<1056, 512, 0, stream>>>(reinterpret_cast<const uint4*>(flush.p), kFlushBytes / 16);
    prepare();
    check(cudaEventRecordWithFlags(start, stream, cudaEventRecordExternal), "record");
    body();
    check(cudaEventRecordWithFlags(stop, stream, cudaEventRecordExternal), "record");
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    std::vector<float> times;
    for (int i = 0; i < replays + 3; ++i) {
      check(cudaGraphLaunch(exec, stream), "replay");
      wait(stream, "replay");
      float ms = 0.0f;
      check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
      if (i >= 3) times.push_back(ms * 1000.0f);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
};

const char* name_of(Format f) {
  return f == Format::bf16 ? "bf16" : f == Format::fp8_block ? "fp8-block" : "fp8-tensor";
}

double bound_of(Format f) { return f == Format::bf16 ? 5e-3 : 1e-2; }

bool check_case(const Layer& layer, std::int64_t tokens, std::int32_t k, Plan plan, bool skewed, Phase phase) {
  Run run(layer, tokens, k, plan, skewed);
  if (phase == Phase::both) {
    run.run_poisoned();
  } else {  // as two launches
    run.args.phase = Phase::fc1;
    run.run_poisoned();
    run.args.phase = Phase::fc2;
    run.clear_ready(nullptr);
    check(launch_experts(run.args, nullptr), "launch");
    wait(nullptr, "experts");
  }
  const double error = run.error(layer, 400);
  const bool ok = error <= bound_of(layer.shape.format);
  std::printf("%-4s %-10s H %d I %d E %d T %lld k %d %s activation %d bias %d%s%s  %.2e\n", ok ? "ok" : "BAD",
              name_of(layer.shape.format), layer.shape.hidden, layer.shape.intermediate, layer.shape.experts,
              static_cast<long long>(tokens), k, plan_name(plan), static_cast<int>(layer.options.activation.kind),
              layer.options.bias, skewed ? " skewed" : "", phase == Phase::both ? "" : " two launches", error);
  std::fflush(stdout);
  return ok;
}

constexpr Plan kPlans[] = {{8, 1},        {8, 2},  {8, 1, true}, {8, 2, true}, {16, 1},
                           {16, 1, true}, {16, 2}, {32, 1},      {64, 1},      {128, 1}};

// All rows of experts of many sizes: against the naive kernel, and bit by bit against a kernel with another order of
// work, since a row must not depend on the tile that it falls into.
int check_columns(Format f, bool static_h) {
  Options o;
  o.bias = true;
  o.static_h = static_h;
  const Layer layer({f, 784, 1040, 9}, o);
  int bad = 0;
  for (const std::int64_t t : {20, 50, 90, 130, 160, 180, 200, 220, 240, 260, 280, 290, 310, 350, 400, 560, 600}) {
    Run run(layer, t, 4, {128, 1}, t == 130), other(layer, t, 4, {64, 1}, t == 130);
    run.run_poisoned();
    other.run_poisoned();
    const double error = run.error(layer, run.routing.routes);
    const std::int64_t rows = run.differing_rows(other);
    const bool ok = error <= bound_of(f) && rows == 0;
    bad += !ok;
    std::printf("%-4s %-10s T %lld t128 all rows  %.2e, %lld rows differ from t64\n", ok ? "ok" : "BAD", name_of(f),
                static_cast<long long>(t), error, static_cast<long long>(rows));
    std::fflush(stdout);
  }
  return bad;
}

int check_all() {
  int bad = 0;
  for (const Format f : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) bad += check_columns(f, true);
  bad += check_columns(Format::fp8_tensor, false);
  for (const Format f : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) {
    for (const auto& [h, i] : {std::pair{2048, 768}, {784, 1040}, {2880, 2880}}) {
      Options o;
      o.bias = h != 2048;
      const Layer layer({f, h, i, 9}, o);
      for (const Plan plan : kPlans) {
        for (const std::int64_t t : {1, 37, 300}) bad += !check_case(layer, t, 4, plan, t == 37, Phase::both);
      }
      bad += !check_case(layer, 300, 4, {64, 1}, true, Phase::fc1);
    }
    for (int kind = 0; kind <= static_cast<int>(ActivationKind::relu2); ++kind) {
      Options o;
      o.bias = true;
      o.activation.kind = static_cast<ActivationKind>(kind);
      o.activation.limit = 1.5f;
      o.activation.beta = 1.25f;
      o.gated = is_gated(o.activation.kind);
      const Layer layer({f, 784, 784, 3}, o);
      for (const Plan plan : {Plan{16, 1}, Plan{64, 1}}) bad += !check_case(layer, 50, 2, plan, false, Phase::both);
    }
  }
  Options dynamic;
  dynamic.static_h = false;
  const Layer layer({Format::fp8_tensor, 784, 1040, 9}, dynamic);
  for (const Plan plan : kPlans) bad += !check_case(layer, 300, 4, plan, false, Phase::both);
  std::printf("check: %d bad\n", bad);
  return bad;
}

struct Model {
  const char* name;
  std::int32_t experts, k, hidden, intermediate;
};

constexpr Model kModels[] = {{"qwen3-30b", 128, 8, 2048, 768},     {"deepseek-v3-ep8", 32, 1, 7168, 2048},
                             {"mixtral-8x7b", 8, 2, 4096, 14336},  {"qwen3-235b", 128, 8, 4096, 1536},
                             {"gpt-oss-120b", 128, 4, 2880, 2880}, {"square-8192", 8, 1, 8192, 8192}};

double floor_us(const Layer& layer, const Run& run) {
  const Shape& s = layer.shape;
  const double bytes = s.format == Format::bf16 ? 2 : 1;
  const double size = 3.0 * s.hidden * s.intermediate;
  const double memory = (run.routing.active * size * bytes + 4.0 * run.tokens * s.hidden) / 4.55e6;
  const double peak = s.format == Format::bf16 ? 740e6 : 1290e6;
  return std::max(memory, 2.0 * size * run.routing.routes / peak);
}

// Plans worth trying for this many rows an expert.
bool worth_trying(const Plan& plan, double rows) {
  if (plan.token_tile <= 16 && rows > 2 * plan.token_tile) return false;
  if ((plan.split > 1 || plan.half_tiles) && rows > 4) return false;
  return plan.token_tile >= rows / 64 && plan.token_tile <= std::max(16.0, 8 * rows);
}

int time_model(Timer& timer, const Model& m, Format f, const std::vector<std::int64_t>& tokens, bool all) {
  const Layer layer({f, m.hidden, m.intermediate, m.experts}, {});
  int bad = 0;
  for (const std::int64_t t : tokens) {
    const double rows = static_cast<double>(t) * m.k / m.experts;
    std::string line;
    double best = 1e30, floor = 0.0;
    const Plan chosen = choose_plan(layer.shape, ActivationKind::swiglu, t, m.k, m.experts, 132);
    double chosen_us = 0.0;
    for (const Plan plan : kPlans) {
      const bool is_chosen =
          plan.token_tile == chosen.token_tile && plan.split == chosen.split && plan.half_tiles == chosen.half_tiles;
      if (!is_chosen && (!all || !worth_trying(plan, rows))) continue;
      Run run(layer, t, m.k, plan, false);
      run.run_poisoned();
      const double error = run.error(layer, 64);
      if (!(error <= bound_of(f))) {
        std::printf("BAD %s %s T %lld %s error %.2e\n", m.name, name_of(f), static_cast<long long>(t), plan_name(plan),
                    error);
        ++bad;
      }
      floor = floor_us(layer, run);
      const double us = timer.median_us(
          t > 1024 ? 9 : 21, [&] { run.rewrite_tables(timer.stream); },
          [&] { check(launch_experts(run.args, timer.stream), "launch"); });
      double phase_us[2] = {0.0, 0.0};
      for (const Phase phase : {Phase::fc1, Phase::fc2}) {
        if (!is_chosen) break;
        run.args.phase = phase;
        phase_us[phase == Phase::fc2] = timer.median_us(
            t > 1024 ? 9 : 21, [&] { run.rewrite_tables(timer.stream); },
            [&] { check(launch_experts(run.args, timer.stream), "launch"); });
      }
      char text[64];
      std::snprintf(text, sizeof text, " %d/%d%s:%.1f", plan.token_tile, plan.split, plan.half_tiles ? "h" : "", us);
      line += text;
      if (is_chosen) {
        std::snprintf(text, sizeof text, " (fc1 %.1f fc2 %.1f)", phase_us[0], phase_us[1]);
        line += text;
      }
      best = std::min(best, us);
      if (is_chosen) chosen_us = us;
    }
    std::printf("%-10s %-15s T %5lld floor %7.1f chosen %-14s %7.1f us %3.0f%% best %3.0f%% |%s\n", name_of(f), m.name,
                static_cast<long long>(t), floor, plan_name(chosen), chosen_us, 100 * floor / chosen_us,
                100 * floor / best, line.c_str());
    std::fflush(stdout);
  }
  return bad;
}

int time_all(int argc, char** argv) {
  Timer timer;
  const double empty = timer.median_us(
      21, [] {}, [&] { nothing<<<1, 32, 0, timer.stream>>>(); });
  std::printf("empty kernel between the events: %.1f us\n", empty);
  std::vector<std::int64_t> tokens;
  std::string formats = argc > 2 ? argv[2] : "bf16,fp8-block,fp8-tensor";
  const std::string models = argc > 3 ? argv[3] : "qwen3-30b,deepseek-v3-ep8,mixtral-8x7b,qwen3-235b,gpt-oss-120b";
  for (int i = 4; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  if (tokens.empty()) tokens = {1, 4, 16, 64, 256, 1024, 4096, 16384};
  int bad = 0;
  for (const Format f : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) {
    if (formats.find(name_of(f)) == std::string::npos) continue;
    for (const Model& m : kModels) {
      if (models.find(m.name) != std::string::npos) bad += time_model(timer, m, f, tokens, true);
    }
  }
  return bad;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  check(sluice::cuda::sm90::prepare_kernels(), "prepare");
  const bool timing = argc > 1 && std::strcmp(argv[1], "time") == 0;
  return (timing ? time_all(argc, argv) : check_all()) == 0 ? 0 : 1;
}
