// Checks and times the expert GEMM kernels alone, without the host side of the runner.
//   nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a -I src bench/cuda/expert_gemm.cu src/cuda/sm90/*.cu \
//        src/cuda/sm90/plan.cc -o expert_gemm && ./expert_gemm check && ./expert_gemm time
// Prints one line a case; exit code 1 if a result is wrong. A time is the median of graph replays
// [read 256 MB, event, both GEMMs, event].
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "expert_data.cuh"

namespace sluice::bench {
namespace {

using namespace cuda::sm90;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(2);
}

// A kernel that waits for something that never comes must not eat the machine's time.
void wait(cudaStream_t stream, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, what);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(8)) {
      std::printf("%s: hangs\n", what);
      std::fflush(stdout);
      std::_Exit(3);
    }
  }
}

template <typename T>
struct DeviceArray {
  T* p = nullptr;
  std::size_t count = 0;
  DeviceArray() = default;
  explicit DeviceArray(std::size_t n) { resize(n); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(p); }
  void resize(std::size_t n) {
    if (n <= count) return;
    cudaFree(p);
    check(cudaMalloc(&p, std::max<std::size_t>(n, 64) * sizeof(T)), "cudaMalloc");
    count = n;
  }
  void upload(const std::vector<T>& v) {
    resize(v.size());
    check(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
};

struct Options {
  ActivationSpec activation;
  bool gated = true;
  bool bias = false;
  bool static_h = true;
};

// Weights of a layer, as read and packed.
struct Layer {
  Shape shape;
  Options options;
  DeviceArray<std::uint8_t> codes[3];  // gate, up, down
  DeviceArray<float> scale[3], bias[3];
  DeviceArray<std::uint8_t> packed;
  PackedLayer out;

  std::int32_t rows(int m) const { return m == 2 ? shape.hidden : shape.intermediate; }
  std::int32_t cols(int m) const { return m == 2 ? shape.intermediate : shape.hidden; }

  std::int64_t scale_count(int m) const {
    if (shape.format == Format::fp8_tensor) return rows(m);
    return ceil_div(rows(m), 128) * ceil_div(cols(m), 128);
  }

  void fill(int m) {
    const std::int64_t n = std::int64_t{shape.experts} * rows(m) * cols(m);
    if (shape.format == Format::bf16) {
      codes[m].resize(n * 2);
      fill_bf16<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(codes[m].p), n, 0.02f, 10 + m);
    } else {
      codes[m].resize(n);
      fill_e4m3<<<4096, 256>>>(codes[m].p, n, 60.0f, 10 + m);
      scale[m].resize(shape.experts * scale_count(m));
      fill_uniform<<<256, 256>>>(scale[m].p, shape.experts * scale_count(m), 2.0e-4f, 5.0e-4f, 20 + m);
    }
    if (!options.bias) return;
    bias[m].resize(std::int64_t{shape.experts} * rows(m));
    fill_uniform<<<256, 256>>>(bias[m].p, std::int64_t{shape.experts} * rows(m), -0.5f, 0.5f, 30 + m);
  }

  MatrixSource source(int m, std::int32_t expert) const {
    MatrixSource s;
    if (m == 0 && !options.gated) return s;
    const std::int64_t bytes = shape.format == Format::bf16 ? 2 : 1;
    s.codes = codes[m].p + expert * std::int64_t{rows(m)} * cols(m) * bytes;
    s.row_stride = cols(m);
    if (scale[m].p != nullptr) s.scale = scale[m].p + expert * scale_count(m);
    if (bias[m].p != nullptr) s.bias = bias[m].p + std::int64_t{expert} * rows(m);
    return s;
  }

  Weights naive(int m) const {
    const MatrixSource s = source(m, 0);
    return {s.codes, s.scale, s.bias, rows(m), cols(m)};
  }

  Layer(const Shape& s, const Options& o) : shape(s), options(o) {
    for (int m = 0; m < 3; ++m) fill(m);
    const PackedBytes b = packed_bytes(shape, o.bias);
    packed.resize(b.total() + 8 * 128);
    std::uint8_t* at = packed.p;
    const auto take = [&](std::size_t bytes) {
      std::uint8_t* p = bytes == 0 ? nullptr : at;
      at += round_up(bytes, 128);
      return p;
    };
    out.w1 = take(b.w1);
    out.w2 = take(b.w2);
    float** arrays[] = {&out.block_scale1, &out.block_scale2, &out.row_scale1, &out.row_scale2, &out.bias1, &out.bias2};
    const std::size_t sizes[] = {b.block_scale1, b.block_scale2, b.row_scale1, b.row_scale2, b.bias1, b.bias2};
    for (int i = 0; i < 6; ++i) *arrays[i] = reinterpret_cast<float*>(take(sizes[i]));
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      check(launch_pack({shape, out, e, source(0, e), source(1, e), source(2, e)}, nullptr), "pack");
    }
    wait(nullptr, "pack");
  }
};

// Routing of T tokens to k of E experts, as the routing kernel would leave it.
struct Routing {
  std::vector<TokenTile> tiles;
  std::vector<std::int32_t> token_of_row;  // -1 in gaps
  std::vector<std::int32_t> expert_of_row;
  std::int64_t padded_rows = 0;
  std::int64_t routes = 0;
  std::int32_t active = 0;
};

Routing make_routing(std::int64_t tokens, std::int32_t k, std::int32_t experts, std::int32_t token_tile, bool skewed) {
  std::mt19937 rng(7 + static_cast<unsigned>(tokens));
  std::vector<std::vector<std::int32_t>> of_expert(experts);
  std::vector<std::int32_t> ids(experts);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int32_t s = 0; s < k; ++s) {
      std::int32_t pick = s + static_cast<std::int32_t>(rng() % (experts - s));
      if (skewed && rng() % 2 == 0) pick = s;
      std::swap(ids[s], ids[pick]);
      of_expert[ids[s]].push_back(static_cast<std::int32_t>(t));
    }
    if (skewed) std::sort(ids.begin(), ids.end());
  }
  std::vector<std::int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return of_expert[a].size() > of_expert[b].size(); });
  Routing r;
  r.routes = tokens * k;
  r.padded_rows = max_padded_rows(r.routes, experts);
  r.token_of_row.assign(r.padded_rows, -1);
  r.expert_of_row.assign(r.padded_rows, -1);
  std::int32_t row = 0;
  for (const std::int32_t e : order) {
    const auto count = static_cast<std::int32_t>(of_expert[e].size());
    if (count == 0) continue;
    ++r.active;
    for (std::int32_t i = 0; i < count; ++i) {
      r.token_of_row[row + i] = of_expert[e][i];
      r.expert_of_row[row + i] = e;
    }
    const auto first = static_cast<std::int32_t>(r.tiles.size());
    const std::int32_t step = token_tile_rows(count, token_tile);
    const auto tiles = static_cast<std::int32_t>(ceil_div(count, token_tile));
    for (std::int32_t j = 0; j < tiles; ++j) {
      r.tiles.push_back({e, row + j * step, std::min(step, count - j * step), first, tiles, {}});
    }
    row += static_cast<std::int32_t>(round_up(count, kRowGroup));
  }
  return r;
}

__global__ void touch(TokenTile* tiles, std::int32_t count, std::int32_t* tile_count) {
  const std::int32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::int32_t t = i; t < count; t += gridDim.x * blockDim.x) tiles[t].unused[0] = i;
  if (i == 0) *tile_count = count;
}

// Everything one launch needs, on the device.
struct Run {
  ExpertArgs args;
  std::int64_t tokens;
  Routing routing;
  DeviceArray<TokenTile> tiles;
  DeviceArray<std::int32_t> tile_count, token_of_row;
  DeviceArray<std::uint32_t> ready;
  DeviceArray<__nv_bfloat16> x, slot_rows;
  DeviceArray<std::uint8_t> image, h;
  DeviceArray<float> x_scale, h_scale, h_f32;

  Run(const Layer& layer, std::int64_t t, std::int32_t k, Plan plan, bool skewed) : tokens(t) {
    const Shape& s = layer.shape;
    const Extents e = extents(s);
    routing = make_routing(t, k, s.experts, plan.token_tile, skewed);
    const std::int64_t p = routing.padded_rows;
    tiles.upload(routing.tiles);
    tile_count.upload({static_cast<std::int32_t>(routing.tiles.size())});
    token_of_row.upload(routing.token_of_row);
    ready.resize(routing.tiles.size());
    x.resize(t * s.hidden);
    fill_bf16<<<1024, 256>>>(x.p, t * s.hidden, 1.0f, 3);
    image.resize(p * e.k_blocks1 * kBlockBytes);
    x_scale.resize(p * e.k_blocks1);
    check(cudaMemset(image.p, 0xff, image.count), "poison");
    make_image<<<static_cast<unsigned>(p), 128>>>(
        {x.p, token_of_row.p, p, s.hidden, e.k_blocks1, s.format, image.p, x_scale.p, 0.01f});
    const float h_static = s.format == Format::fp8_tensor && layer.options.static_h ? 0.05f : 0.0f;
    const ScratchBytes scratch = scratch_bytes(s, p, h_static > 0.0f);
    h.resize(scratch.h);
    h_scale.resize(scratch.h_scale / 4);
    h_f32.resize(scratch.h_f32 / 4);
    slot_rows.resize(p * s.hidden);
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    args.shape = s;
    args.plan = plan;
    args.weights = layer.out;
    args.routes = {tile_count.p, tiles.p, static_cast<std::int32_t>(routing.tiles.size()), ready.p};
    args.activation = layer.options.activation;
    args.padded_rows = p;
    args.x = image.p;
    args.x_scale = x_scale.p;
    args.h = h.p;
    args.h_scale = h_scale.p;
    args.h_static_scale = h_static;
    args.h_f32 = h_f32.p;
    args.slot_rows = slot_rows.p;
    args.sm_count = sms;
    args.pdl = false;
    wait(nullptr, "set up");
  }

  void clear_ready(cudaStream_t stream) {
    check(cudaMemsetAsync(ready.p, 0, routing.tiles.size() * 4, stream), "clear");
  }

  // Leaves the routing tables in L2, as the routing kernel does.
  void rewrite_tables(cudaStream_t stream) {
    clear_ready(stream);
    touch<<<16, 256, 0, stream>>>(tiles.p, static_cast<std::int32_t>(routing.tiles.size()), tile_count.p);
  }

  // Runs once on poisoned outputs.
  void run_poisoned() {
    check(cudaMemset(slot_rows.p, 0xff, slot_rows.count * 2), "poison");
    check(cudaMemset(h.p, 0xff, h.count), "poison");
    clear_ready(nullptr);
    check(launch_experts(args, nullptr), "launch");
    wait(nullptr, "experts");
  }

  // Relative L2 error of up to `limit` rows.
  double error(const Layer& layer, std::size_t limit) {
    std::vector<std::int32_t> rows, experts;
    const std::size_t step = std::max<std::size_t>(1, routing.routes / limit);
    std::size_t seen = 0;
    for (std::int32_t r = 0; r < routing.padded_rows; ++r) {
      if (routing.token_of_row[r] < 0 || seen++ % step != 0) continue;
      rows.push_back(r);
      experts.push_back(routing.expert_of_row[r]);
    }
    const auto n = static_cast<unsigned>(rows.size());
    const Shape& s = layer.shape;
    const std::int64_t widest = round_up(std::max(s.hidden, s.intermediate), 128);
    DeviceArray<std::int32_t> d_rows, d_experts;
    d_rows.upload(rows);
    d_experts.upload(experts);
    DeviceArray<float> values(n * widest), scales(n * widest / 128), h_ref(n * widest), out(n * widest);
    DeviceArray<double> sums(2);
    check(cudaMemset(sums.p, 0, 16), "clear");
    const NaiveArgs a{s.format,
                      args.activation,
                      s.hidden,
                      s.intermediate,
                      d_rows.p,
                      d_experts.p,
                      args.padded_rows,
                      args.x,
                      args.x_scale,
                      args.h_static_scale,
                      layer.naive(0),
                      layer.naive(1),
                      layer.naive(2),
                      values.p,
                      scales.p,
                      h_ref.p,
                      out.p};
    naive_load<<<n, 256>>>(a);
    naive_first<<<dim3(n, 16), 256>>>(a);
    naive_quantize<<<n, 128>>>(a);
    naive_second<<<dim3(n, 16), 256>>>(a);
    compare<<<n, 256>>>(a, slot_rows.p, sums.p);
    double host[2];
    check(cudaMemcpy(host, sums.p, 16, cudaMemcpyDeviceToHost), "error sums");
    return std::sqrt(host[0] / host[1]);
  }
};

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

int check_all() {
  int bad = 0;
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
