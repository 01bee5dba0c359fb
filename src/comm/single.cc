#include <cstring>

#include "comm/group.h"

namespace sluice {
namespace {

void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

// Nobody else to talk to: what is sent is what is received.
class SingleGroup final : public Group {
 public:
  std::string_view name() const override { return "single"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(void* /*data*/, std::size_t /*bytes*/, int /*root*/, Stream /*s*/) override {}
  void all_reduce_sum(float* /*data*/, std::size_t /*count*/, Stream /*s*/) override {}
  void all_gather(const void* send, void* receive, const RankParts& parts, Stream /*s*/) override {
    copy(static_cast<std::byte*>(receive) + parts.offsets[0], send, parts.counts[0]);
  }
  void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream /*s*/) override {
    copy(receive, send + parts.offsets[0], parts.counts[0] * static_cast<std::int64_t>(sizeof(float)));
  }
  void start_all_to_all(const AllToAll& x, Stream /*s*/) override {
    copy(static_cast<std::byte*>(x.receive) + x.receive_parts.offsets[0],
         static_cast<const std::byte*>(x.send) + x.send_parts.offsets[0], x.send_parts.counts[0]);
  }
  void finish_all_to_all(Stream /*s*/) override {}
  std::unique_ptr<Group> split(int /*color*/) override { return make_single_group(); }
};

}  // namespace

std::unique_ptr<Group> make_single_group() { return std::make_unique<SingleGroup>(); }

}  // namespace sluice
