#include "comm/nccl.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/nccl_comm.h"
#include "comm/nccl_sum.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

// Up to here one gathering of everything is cheaper than two exchanges of parts.
constexpr std::size_t kWholeSumFloats = 32'768;
constexpr std::int64_t kFloat = sizeof(float);

cudaStream_t raw(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

class NcclGroup final : public Group {
 public:
  // `own_host` keeps the host group of a part alive.
  NcclGroup(Group& host, std::unique_ptr<Group> own_host, const NcclOptions& options)
      : own_host_(std::move(own_host)),
        host_(host),
        options_(options),
        comm_(host, options.device, options.timeout_seconds) {
    const OnDevice scope(options_.device);
    check_cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "stream");
    for (cudaEvent_t* event : {&before_, &after_}) {
      check_cuda(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "event");
    }
  }
  ~NcclGroup() override {
    const OnDevice scope(options_.device);
    cudaStreamDestroy(side_);
    cudaEventDestroy(before_);
    cudaEventDestroy(after_);
    cudaFree(scratch_);
  }

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  Device device() const override { return {DeviceKind::cuda, options_.device}; }
  std::string gone_peers() const override { return host_.gone_peers(); }
  double set_timeout(double seconds) override {
    host_.set_timeout(seconds);
    return comm_.set_timeout(seconds);
  }

  // Of the hosts: streams are ordered by the operations on them.
  void barrier() override { host_.barrier(); }

  void broadcast(void* data, std::size_t bytes, int root, Stream stream) override {
    begin("broadcast");
    if (size() == 1 || bytes == 0) return;
    const OnDevice scope(options_.device);
    comm_.enqueue(raw(stream), [&] {
      comm_.check(comm_.nccl().broadcast(data, data, bytes, ncclUint8, root, comm_.handle(), raw(stream)),
                  "ncclBroadcast");
    });
  }

  void all_reduce_sum(float* data, std::size_t count, Stream stream) override {
    begin("all_reduce");
    if (size() == 1 || count == 0) return;
    const OnDevice scope(options_.device);
    if (count <= kWholeSumFloats) return sum_whole(data, count, raw(stream));
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<std::int64_t> offsets(ranks), counts(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      offsets[r] = static_cast<std::int64_t>(count / ranks * r + std::min(r, count % ranks));
      counts[r] = static_cast<std::int64_t>(count / ranks + (r < count % ranks ? 1 : 0));
    }
    float* const mine = data + offsets[static_cast<std::size_t>(rank())];
    sum_parts(data, mine, {offsets.data(), counts.data()}, raw(stream));
    for (std::size_t r = 0; r < ranks; ++r) {
      offsets[r] *= kFloat;
      counts[r] *= kFloat;
    }
    gather(mine, data, {offsets.data(), counts.data()}, raw(stream));
  }

  void all_gather(const void* send, void* receive, const RankParts& parts, Stream stream) override {
    begin("all_gather");
    const OnDevice scope(options_.device);
    gather(send, receive, parts, raw(stream));
  }

  void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream stream) override {
    begin("reduce_scatter");
    const OnDevice scope(options_.device);
    sum_parts(send, receive, parts, raw(stream));
  }

  // On a stream of its own between two events, so that work of the caller's stream runs beside it.
  void start_all_to_all(const AllToAll& x, Stream stream) override {
    begin("all_to_all");
    const OnDevice scope(options_.device);
    check_cuda(cudaEventRecord(before_, raw(stream)), "event");
    check_cuda(cudaStreamWaitEvent(side_, before_), "wait for an event");
    exchange(x, side_);
    check_cuda(cudaEventRecord(after_, side_), "event");
  }

  void finish_all_to_all(Stream stream) override {
    const OnDevice scope(options_.device);
    check_cuda(cudaStreamWaitEvent(raw(stream), after_), "wait for an event");
  }

  std::unique_ptr<Group> split(int color) override {
    begin("split");
    std::unique_ptr<Group> part = host_.split(color);
    Group& host = *part;
    return std::make_unique<NcclGroup>(host, std::move(part), options_);
  }

 private:
  void begin(const char* operation) { comm_.enter(operation); }

  float* scratch(std::int64_t floats) {
    if (floats > scratch_floats_) {
      check_cuda(cudaFree(std::exchange(scratch_, nullptr)), "memory of sums");
      scratch_floats_ = 0;
      check_cuda(cudaMalloc(&scratch_, static_cast<std::size_t>(floats * kFloat)), "memory of sums");
      scratch_floats_ = floats;
    }
    return static_cast<float*>(scratch_);
  }

  void exchange(const AllToAll& x, cudaStream_t stream) {
    const auto* send = static_cast<const std::byte*>(x.send);
    auto* receive = static_cast<std::byte*>(x.receive);
    const int me = rank();
    if (size() > 1) {
      comm_.enqueue(stream, [&] {
        for (int step = 1; step < size(); ++step) {
          const int to = (me + step) % size(), from = (me + size() - step) % size();
          post(x.send_parts.counts[to], [&](std::size_t bytes) {
            return comm_.nccl().send(send + x.send_parts.offsets[to], bytes, ncclUint8, to, comm_.handle(), stream);
          });
          post(x.receive_parts.counts[from], [&](std::size_t bytes) {
            return comm_.nccl().recv(receive + x.receive_parts.offsets[from], bytes, ncclUint8, from, comm_.handle(),
                                     stream);
          });
        }
      });
    }
    copy_own(send + x.send_parts.offsets[me], receive + x.receive_parts.offsets[me], x.send_parts.counts[me], stream);
  }

  template <class Call>
  void post(std::int64_t bytes, Call call) {
    if (bytes != 0) comm_.check(call(static_cast<std::size_t>(bytes)), "message of an exchange");
  }

  static void copy_own(const std::byte* from, std::byte* to, std::int64_t bytes, cudaStream_t stream) {
    if (bytes == 0 || from == to) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "copy");
  }

  void gather(const void* send, void* receive, const RankParts& parts, cudaStream_t stream) {
    const std::vector<std::int64_t> offsets(static_cast<std::size_t>(size()), 0);
    const std::vector<std::int64_t> counts(offsets.size(), parts.counts[rank()]);
    exchange({send, {offsets.data(), counts.data()}, receive, parts}, stream);
  }

  void sum_whole(float* data, std::size_t count, cudaStream_t stream) {
    float* const all = scratch(static_cast<std::int64_t>(count) * size());
    comm_.enqueue(stream, [&] {
      comm_.check(comm_.nccl().all_gather(data, all, count, ncclFloat32, comm_.handle(), stream), "ncclAllGather");
    });
    check_cuda(sum_ranks(all, size(), static_cast<std::int64_t>(count), data, stream), "sum over ranks");
  }

  void sum_parts(const float* send, float* receive, const RankParts& parts, cudaStream_t stream) {
    const std::int64_t mine = parts.counts[rank()];
    float* const all = scratch(mine * size());
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<std::int64_t> from(ranks), bytes(ranks), to(ranks), expected(ranks, mine * kFloat);
    for (std::size_t r = 0; r < ranks; ++r) {
      from[r] = parts.offsets[r] * kFloat;
      bytes[r] = parts.counts[r] * kFloat;
      to[r] = static_cast<std::int64_t>(r) * mine * kFloat;
    }
    exchange({send, {from.data(), bytes.data()}, all, {to.data(), expected.data()}}, stream);
    check_cuda(sum_ranks(all, size(), mine, receive, stream), "sum over ranks");
  }

  std::unique_ptr<Group> own_host_;
  Group& host_;
  NcclOptions options_;
  NcclComm comm_;
  cudaStream_t side_ = nullptr;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  void* scratch_ = nullptr;
  std::int64_t scratch_floats_ = 0;
};

}  // namespace

std::unique_ptr<Group> make_nccl_group(Group& host, const NcclOptions& options) {
  return std::make_unique<NcclGroup>(host, nullptr, options);
}

}  // namespace sluice::comm
