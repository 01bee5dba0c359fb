// A group of GPUs with buffers of the host, so that the checks of all groups can be made with it. For tests; one thread
// a rank.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "comm/group.h"

namespace sluice::test {

inline void ok(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class OnGpu {
 public:
  OnGpu(const void* host, std::size_t bytes) : bytes_(bytes) {
    ok(cudaMalloc(&data_, bytes + 1));
    ok(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void fetch(void* host) const { ok(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost)); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

inline std::size_t extent(const RankParts& parts, int ranks) {
  return static_cast<std::size_t>(parts.offsets[ranks - 1] + parts.counts[ranks - 1]);
}

class Staged final : public Group {
 public:
  explicit Staged(std::unique_ptr<Group> inner) : inner_(std::move(inner)) { ok(cudaStreamCreate(&stream_)); }
  ~Staged() override { cudaStreamDestroy(stream_); }
  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void barrier() override { inner_->barrier(); }
  void broadcast(void* data, std::size_t bytes, int root, Stream) override {
    const OnGpu d(data, bytes);
    inner_->broadcast(d.data(), bytes, root, stream());
    end();
    d.fetch(data);
  }
  void all_reduce_sum(float* data, std::size_t count, Stream) override {
    const OnGpu d(data, count * sizeof(float));
    inner_->all_reduce_sum(reinterpret_cast<float*>(d.data()), count, stream());
    end();
    d.fetch(data);
  }
  void all_gather(const void* send, void* receive, const RankParts& parts, Stream) override {
    const OnGpu to(receive, extent(parts, size()));
    const OnGpu from(send, static_cast<std::size_t>(parts.counts[rank()]));
    const bool in_place = send == static_cast<std::byte*>(receive) + parts.offsets[rank()];
    inner_->all_gather(in_place ? to.data() + parts.offsets[rank()] : from.data(), to.data(), parts, stream());
    end();
    to.fetch(receive);
  }
  void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream) override {
    const OnGpu from(send, extent(parts, size()) * sizeof(float));
    const OnGpu to(receive, static_cast<std::size_t>(parts.counts[rank()]) * sizeof(float));
    inner_->reduce_scatter_sum(reinterpret_cast<float*>(from.data()), reinterpret_cast<float*>(to.data()), parts,
                               stream());
    end();
    to.fetch(receive);
  }
  void start_all_to_all(const AllToAll& x, Stream) override {
    host_receive_ = x.receive;
    from_ = std::make_unique<OnGpu>(x.send, extent(x.send_parts, size()));
    to_ = std::make_unique<OnGpu>(x.receive, extent(x.receive_parts, size()));
    inner_->start_all_to_all({from_->data(), x.send_parts, to_->data(), x.receive_parts}, stream());
  }
  void finish_all_to_all(Stream) override {
    inner_->finish_all_to_all(stream());
    end();
    to_->fetch(host_receive_);
  }
  std::unique_ptr<Group> split(int color) override { return std::make_unique<Staged>(inner_->split(color)); }

 private:
  Stream stream() const { return {stream_}; }
  void end() const { ok(cudaStreamSynchronize(stream_)); }

  std::unique_ptr<Group> inner_;
  cudaStream_t stream_ = nullptr;
  void* host_receive_ = nullptr;
  std::unique_ptr<OnGpu> from_, to_;
};

}  // namespace sluice::test
