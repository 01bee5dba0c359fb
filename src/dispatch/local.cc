#include "dispatch/parts.h"

namespace sluice {
namespace {

// All experts are here: tokens stay where they are, and the runner's sum is complete.
class LocalDispatcher final : public Dispatcher {
 public:
  LocalDispatcher(std::shared_ptr<const Placement> placement, SlotLoad* load)
      : map_(std::move(placement)), load_(load) {}

  DispatchKind kind() const override { return DispatchKind::local; }

  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t /*width*/) const override {
    return map_.workspace_bytes(tokens, top_k);
  }

  std::int64_t most_rows(std::int64_t tokens) const override { return tokens; }

  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream /*stream*/) override {
    return detail::in_place(input, map_, map_.placement().of_rank(0), load_, workspace);
  }

  void combine(const TensorView& /*out*/, FunctionRef<void()> meanwhile, Workspace& /*workspace*/,
               Stream /*stream*/) override {
    meanwhile();
  }

 private:
  SlotMap map_;
  SlotLoad* load_;
};

}  // namespace

std::unique_ptr<Dispatcher> detail::make_local(const DispatcherOptions& options) {
  return std::make_unique<LocalDispatcher>(options.placement, options.load);
}

std::unique_ptr<Dispatcher> make_local_dispatcher(std::int32_t experts) {
  return std::make_unique<LocalDispatcher>(std::make_shared<const Placement>(Placement::contiguous(experts, 1)),
                                           nullptr);
}

}  // namespace sluice
