#include <cstring>

#include "comm/group.h"

namespace sluice {
namespace {

// Nobody else to talk to: every collective leaves its data as it is.
class SingleGroup final : public Group {
 public:
  std::string_view name() const override { return "single"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(void* /*data*/, std::size_t /*bytes*/, int /*root*/) override {}
  void all_reduce_sum(float* /*data*/, std::size_t /*count*/) override {}
  void all_gather(const void* send, std::size_t bytes, void* receive) override {
    if (bytes != 0) std::memmove(receive, send, bytes);
  }
};

}  // namespace

std::unique_ptr<Group> make_single_group() { return std::make_unique<SingleGroup>(); }

}  // namespace sluice
