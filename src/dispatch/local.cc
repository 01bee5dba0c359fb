#include "dispatch/dispatcher.h"

namespace sluice {
namespace {

// All experts are here: tokens stay where they are, and the runner's sum is complete.
class LocalDispatcher final : public Dispatcher {
 public:
  explicit LocalDispatcher(std::int32_t experts) : slots_{0, experts} {}

  DispatchKind kind() const override { return DispatchKind::local; }

  std::size_t workspace_bytes(std::int64_t /*tokens*/, std::int32_t /*top_k*/, std::int64_t /*hidden*/) const override {
    return 0;
  }

  Dispatched dispatch(const DispatchInput& input, Workspace& /*workspace*/, Stream /*stream*/) override {
    // Both id types are stored as int32 (moe/ids.h), and here they are the same numbers. The ids may lie in device
    // memory, so they are not copied one by one.
    return {input.hidden, reinterpret_cast<const SlotId*>(input.ids), input.weights, slots_};
  }

  void combine(const TensorView& /*sum*/, Workspace& /*workspace*/, Stream /*stream*/) override {}

 private:
  SlotRange slots_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_local_dispatcher(std::int32_t experts) {
  return std::make_unique<LocalDispatcher>(experts);
}

}  // namespace sluice
