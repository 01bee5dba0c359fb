// The expert layer over as many GPUs as there are, a thread a rank, with NCCL between them: against one GPU. With one
// GPU, or without NCCL, the summary says so. NCCL_NVLS_ENABLE=0 is set by who runs it on machines whose links are
// shared.
#include <string>
#include <utility>

#include "comm/nccl.h"
#include "comm/rank_threads.h"
#include "cuda/device.h"
#include "cuda/streams.h"
#include "dispatch/dispatcher.h"
#include "gpu/harness.h"
#include "gpu/ranks_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::on_rank_threads;
using sluice::testing::OutputKind;
using sluice::testing::parallel_sizes;

// Memory of one of several GPUs.
template <class T>
struct OnRank {
  OnRank(std::size_t count, int device)
      : memory(cuda::device_buffer(std::max<std::size_t>(count, 1) * sizeof(T), device)) {
    cuda::fill_device(memory.data(), DeviceArray<T>::kPoison, memory.bytes(), "poisoning memory");
  }
  OnRank(const std::vector<T>& values, int device) : OnRank(values.size(), device) {
    cuda::copy_to_device(memory.data(), values.data(), values.size() * sizeof(T), "upload");
  }
  T* data() const { return memory.template as<T>(); }
  Buffer memory;
};

struct Job {
  const LayerOverRanks& layer;
  const Batch& batch;
  ParallelSizes sizes;
  int runs = 1;
};

Dispatched dispatch_on(Dispatcher& dispatcher, const Batch& batch, const OnRank<std::byte>& hidden,
                       const OnRank<SlotId>& ids, const OnRank<float>& weights, Workspace& workspace, Stream stream) {
  DispatchInput input;
  input.hidden = dense_view(static_cast<const void*>(hidden.data()), DType::bf16, batch.tokens, batch.width);
  input.ids = reinterpret_cast<const LogicalId*>(ids.data());
  input.weights = weights.data();
  input.top_k = batch.top_k;
  return dispatcher.dispatch(input, workspace, stream);
}

// One rank: the whole layer but for routing, `runs` times. [runs] outputs.
std::vector<Floats> run_rank(const Job& job, Group& group) {
  const int device = group.device().index;
  RankSlice s = job.layer.cut(job.sizes, group.rank());
  s.problem.device = group.device();
  const auto runner = cuda::make_hopper_runner(nullptr, {});
  const auto experts = runner->prepare(s.problem, std::move(s.weights));
  DispatcherOptions o;
  o.plan = s.plan;
  o.world = &group;
  o.placement = std::make_shared<const Placement>(Placement::contiguous(job.layer.spec.experts, s.plan.experts.count));
  o.recipe = job.layer.spec.recipe;
  const auto dispatcher = make_dispatcher(o);

  const cuda::OwnedStream stream(device);
  const OnRank<std::byte> hidden(job.batch.hidden, device);
  const OnRank<SlotId> ids(job.batch.ids, device);
  const OnRank<float> weights(job.batch.weights, device);
  Floats host(static_cast<std::size_t>(job.batch.tokens * job.batch.width));
  const OnRank<float> out(host.size(), device);
  const OnRank<std::byte> memory(runner->workspace_bytes(s.problem, job.batch.tokens), device);
  std::vector<Floats> outputs;
  for (int i = 0; i < job.runs; ++i) {
    Workspace workspace(memory.data(), memory.memory.bytes());
    RunArgs args;
    const Dispatched d = dispatch_on(*dispatcher, job.batch, hidden, ids, weights, workspace, stream.handle());
    args.hidden = d.hidden;
    args.ids = d.ids;
    args.weights = d.weights;
    args.top_k = d.top_k;
    args.slots = d.slots;
    args.sum = dense_view(out.data(), DType::f32, job.batch.tokens, job.batch.width);
    args.workspace = &workspace;
    args.stream = stream.handle();
    runner->run(*experts, args);
    dispatcher->combine(
        args.sum, [] {}, workspace, stream.handle());
    stream.synchronize();
    cuda::check(cudaMemcpy(host.data(), out.data(), host.size() * sizeof(float), cudaMemcpyDeviceToHost), "download");
    outputs.push_back(host);
  }
  return outputs;
}

// [ranks] of [runs] outputs.
std::vector<std::vector<Floats>> run_ranks(const Job& job) {
  constexpr double kTimeoutSeconds = 60.0;
  std::vector<std::vector<Floats>> outputs(static_cast<std::size_t>(job.sizes.tp));
  on_rank_threads(make_thread_groups(job.sizes.tp, kTimeoutSeconds), [&](std::size_t r, std::unique_ptr<Group>& given) {
    const std::unique_ptr<Group> host = std::move(given);  // goes with the thread: then the rank is gone
    const int device = static_cast<int>(r);
    cuda::check(cudaSetDevice(device), "choosing a GPU");
    const auto group = comm::make_nccl_group(*host, {device, kTimeoutSeconds});
    outputs[r] = run_rank(job, *group);
    host->barrier();
  });
  return outputs;
}

void compare_with_one_gpu(Check& check, const Job& job, const std::vector<double>& bounds, const Floats& whole) {
  const std::string name = std::to_string(job.sizes.tp) + " GPUs, ep " + std::to_string(job.sizes.ep) + ", T " +
                           std::to_string(job.batch.tokens) + ": " + job.layer.spec.text();
  const auto outputs = run_ranks(job);
  for (const std::vector<Floats>& of_rank : outputs) {
    for (const Floats& out : of_rank) {
      check.expect(same_bits(out, outputs[0][0]), "ranks or runs have different bits, " + name);
    }
  }
  check.at_most(worst_in_bounds(outputs[0][0], whole, bounds), 1.0, "distance from one GPU in bounds, " + name);
}

std::vector<double> piece_norms(const LayerOverRanks& layer, std::int32_t pieces, const Batch& batch) {
  std::vector<double> norms(batch.ids.size());
  for (std::int32_t p = 0; p < pieces && pieces > 1; ++p) {
    const Floats rows = layer.run(layer.slice(parallel_sizes(pieces, 1, 1), p), batch, OutputKind::routes_f32);
    for (std::size_t r = 0; r < norms.size(); ++r)
      norms[r] += row_norm(rows, static_cast<std::int64_t>(r), batch.width);
  }
  return norms;
}

void layers_over_gpus(Check& check) {
  constexpr int kRuns = 20;
  const int gpus = cuda::device_count(nullptr);
  const comm::EngineFound nccl = comm::find_nccl();
  check.expect(nccl.advice.empty() || gpus < 2, "several GPUs and no NCCL: " + nccl.advice);
  if (!nccl.advice.empty()) return check.note("nothing ran: " + nccl.found);
  check.note(nccl.found + ", " + std::to_string(gpus) + " GPUs; worst: distance from one GPU in units of its bound");
  for (const LayerCase& c : rank_cases()) {
    const LayerOverRanks layer(c);
    for (const std::int64_t tokens : {1, 37, 600}) {
      const Batch batch = rank_batch(c, tokens, 8);
      const Floats whole = layer.run_whole(batch, OutputKind::sum_f32);
      const Floats rows = layer.run_whole(batch, OutputKind::routes_f32);
      for (const std::int32_t ep : {gpus, 1}) {
        const std::int32_t pieces = gpus / ep;
        const Job job{layer, batch, parallel_sizes(gpus, ep, 1), kRuns};
        compare_with_one_gpu(check, job, token_bounds(c, batch, rows, piece_norms(layer, pieces, batch), pieces),
                             whole);
        if (gpus == 1) break;
      }
    }
  }
}

}  // namespace

std::vector<Test> ranks_nccl_tests() { return {{"ranks: GPUs over NCCL", layers_over_gpus}}; }

}  // namespace sluice::gpu_tests
