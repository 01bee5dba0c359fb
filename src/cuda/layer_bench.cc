#include "cuda/layer_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/function_ref.h"
#include "cuda/backend.h"
#include "cuda/bench_kernels.h"
#include "cuda/buffers.h"
#include "cuda/device.h"
#include "cuda/oracle.h"
#include "cuda/runner_hopper.h"
#include "cuda/sm90/launch.h"
#include "cuda/status.h"
#include "cuda/streams.h"
#include "numerics/bf16.h"
#include "numerics/distance.h"

namespace sluice::cuda {
namespace {

constexpr std::size_t kFlushBytes = 256u << 20;
constexpr std::size_t kStreamBytes = std::size_t{4} << 30;
constexpr int kCeilingRepetitions = 9;

// Then there is no routing kernel.
bool one_launch(const std::string& kernel) {
  sm90::Plan plan;
  plan.decode = true;
  return kernel == sm90::plan_name(plan);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Buffer upload(const void* data, std::size_t bytes, int device) {
  Buffer buffer = device_buffer(std::max<std::size_t>(bytes, 16), device);
  copy_to_device(buffer.data(), data, bytes, "uploading a batch");
  return buffer;
}

// A captured graph and its instance.
class Graph {
 public:
  Graph(cudaStream_t stream, FunctionRef<void()> work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    work();
    check(cudaStreamEndCapture(stream, &graph_), "capturing");
    check(cudaGraphInstantiate(&instance_, graph_, 0), "making a graph");
  }
  ~Graph() {
    if (instance_ != nullptr) cudaGraphExecDestroy(instance_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(instance_, stream), "replaying a graph"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

class HopperBench final : public LayerBench {
 public:
  HopperBench(int device, ThreadPool* pool)
      : info_(device_info(device)),
        scope_(device),
        stream_(device),
        runner_(make_hopper_runner(pool)),
        route_only_(make_hopper_runner(pool, {0, 0, 1})),
        no_finalize_(make_hopper_runner(pool, {0, 0, 2})),
        invariant_(make_hopper_runner(pool, {0, 1})),
        flush_(device_buffer(kFlushBytes, device)),
        sink_(device_buffer(sizeof(std::uint32_t), device)) {
    fill_device(flush_.data(), 0x5A, kFlushBytes, "filling memory");
  }

  GpuCeilings ceilings() override {
    GpuCeilings c;
    c.name = info_.name;
    const Buffer from = device_buffer(kStreamBytes, info_.index), to = device_buffer(kStreamBytes, info_.index);
    fill_device(from.data(), 0x5A, kStreamBytes, "filling memory");
    const double bytes = static_cast<double>(kStreamBytes);
    c.read_tb_per_s = 1e-6 * bytes / time_plain([&] { read(from.data(), kStreamBytes); });
    c.copy_tb_per_s =
        2e-6 * bytes / time_plain([&] {
          check(cudaMemcpyAsync(to.data(), from.data(), kStreamBytes, cudaMemcpyDeviceToDevice, stream_.get()),
                "copying");
        });
    c.bf16_tflop_per_s = products(bench::Products::bf16);
    c.fp8_tflop_per_s = products(bench::Products::e4m3);
    c.empty_us = median(time_cold(25, [&] { check(bench::launch_empty(stream_.get()), "an empty kernel"); }));
    return c;
  }

  void load(const Problem& problem, const ExpertWeights& weights) override {
    experts_.reset();
    oracle_.reset();
    problem_ = problem;
    problem_.device = {DeviceKind::cuda, info_.index};
    experts_ = runner_->prepare(problem_, ExpertWeights(weights));
    oracle_ = std::make_unique<Oracle>(problem_, weights, info_.index);
  }

  std::int64_t resident_bytes() const override { return experts_->resident_bytes(); }

  GpuTiming measure(const GpuBatch& batch, int repetitions, int checked_rows) override {
    const std::int64_t tokens = batch.hidden.rows, width = batch.hidden.cols;
    const auto routes = static_cast<std::size_t>(tokens * batch.top_k);
    const Buffer hidden = upload(batch.hidden.data, static_cast<std::size_t>(tokens * width) * 2, info_.index);
    const Buffer ids = upload(batch.ids, routes * sizeof(SlotId), info_.index);
    const Buffer weights = upload(batch.weights, routes * sizeof(float), info_.index);
    const Buffer out = device_buffer(static_cast<std::size_t>(tokens * width) * 2, info_.index);
    const Buffer memory = device_buffer(runner_->workspace_bytes(problem_, tokens), info_.index);
    for (const Buffer* b : {&out, &memory}) fill_device(b->data(), 0xFF, b->bytes(), "poisoning memory");
    Workspace workspace(memory.data(), memory.bytes());
    RunArgs args;
    args.hidden = dense_view(static_cast<const void*>(hidden.data()), DType::bf16, tokens, width);
    args.ids = ids.as<SlotId>();
    args.weights = weights.as<float>();
    args.top_k = batch.top_k;
    args.slots = batch.slots;
    args.sum = dense_view(out.data(), DType::bf16, tokens, width);
    args.workspace = &workspace;
    args.stream = stream_.handle();
    runner_->run(*experts_, args);
    stream_.synchronize();
    GpuTiming timing;
    timing.error = error(args, checked_rows);
    timing.checked_rows = static_cast<int>(std::min<std::int64_t>(tokens, checked_rows));
    timing.kernel = hopper_kernel(problem_, batch.slots.count, tokens);
    timing.us = time_cold(repetitions, [&] { runner_->run(*experts_, args); });
    if (!one_launch(timing.kernel)) {
      timing.route_us = median(time_cold(repetitions, [&] { route_only_->run(*experts_, args); }));
    }
    timing.experts_us = median(time_cold(repetitions, [&] { no_finalize_->run(*experts_, args); }));
    Problem invariant = problem_;
    invariant.row_invariant = true;
    const std::string same = timing.kernel + ",";
    if (hopper_kernel(invariant, batch.slots.count, tokens).compare(0, same.size(), same) != 0) {
      timing.invariant_us = median(time_cold(repetitions, [&] { invariant_->run(*experts_, args); }));
    }
    return timing;
  }

 private:
  double error(const RunArgs& args, int checked_rows) const {
    const std::int64_t tokens = args.tokens(), width = args.sum.cols;
    const std::int64_t n = std::min<std::int64_t>(tokens, checked_rows);
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < n; ++i) list.push_back(n == 1 ? 0 : i * (tokens - 1) / (n - 1));
    const std::vector<float> expected =
        oracle_->rows({args.hidden, args.ids, args.weights, args.top_k, args.slots.first}, list).sum;
    std::vector<float> got;
    std::vector<Bf16> row(static_cast<std::size_t>(width));
    for (const std::int64_t t : list) {
      check(cudaMemcpy(row.data(), args.sum.row<Bf16>(t), row.size() * sizeof(Bf16), cudaMemcpyDeviceToHost),
            "reading a result");
      for (const Bf16 v : row) got.push_back(to_float(v));
    }
    return relative_l2(got, expected);
  }

  void read(const void* data, std::size_t bytes) const {
    check(bench::launch_read(data, bytes, info_.processors, sink_.as<std::uint32_t>(), stream_.get()),
          "reading memory");
  }

  double products(bench::Products type) const {
    double operations = 0;
    const double us = time_plain([&] {
      check(bench::launch_products(type, info_.processors, sink_.as<std::uint32_t>(), &operations, stream_.get()),
            "matrix products");
    });
    return 1e-6 * operations / us;
  }

  // Microseconds, the median of a few runs after one that does not count.
  double time_plain(FunctionRef<void()> work) const {
    const Event begin(true), end(true);
    std::vector<double> us;
    for (int i = 0; i <= kCeilingRepetitions; ++i) {
      begin.record(stream_.get());
      work();
      end.record(stream_.get());
      end.synchronize();
      if (i > 0) us.push_back(elapsed_us(begin, end));
    }
    return median(us);
  }

  std::vector<double> time_cold(int repetitions, FunctionRef<void()> work) const {
    std::vector<Event> begin, end;
    for (int i = 0; i < repetitions; ++i) {
      begin.emplace_back(true);
      end.emplace_back(true);
    }
    const Graph graph(stream_.get(), [&] {
      for (int i = 0; i < repetitions; ++i) {
        read(flush_.data(), kFlushBytes);
        begin[static_cast<std::size_t>(i)].record_in_graph(stream_.get());
        work();
        end[static_cast<std::size_t>(i)].record_in_graph(stream_.get());
      }
    });
    for (int i = 0; i < 2; ++i) graph.launch(stream_.get());  // the first warms up
    stream_.synchronize();
    std::vector<double> us;
    for (int i = 0; i < repetitions; ++i) {
      us.push_back(elapsed_us(begin[static_cast<std::size_t>(i)], end[static_cast<std::size_t>(i)]));
    }
    return us;
  }

  DeviceInfo info_;
  DeviceScope scope_;
  OwnedStream stream_;
  std::unique_ptr<Runner> runner_, route_only_, no_finalize_, invariant_;
  Buffer flush_, sink_;
  Problem problem_;
  std::unique_ptr<PreparedExperts> experts_;
  std::unique_ptr<Oracle> oracle_;
};

}  // namespace

std::unique_ptr<LayerBench> make_layer_bench(int device, ThreadPool* pool) {
  const Status s = status();
  if (!s.usable) fail(ErrorCode::unsupported, "GPU " + std::to_string(device) + ": " + s.found, "", s.advice);
  return std::make_unique<HopperBench>(device, pool);
}

}  // namespace sluice::cuda
