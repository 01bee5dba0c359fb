#include "dispatch/parts.h"

namespace sluice {
namespace {

// Every rank has all tokens and computes what its experts, or its pieces of experts, add to them; the sums of all ranks
// are added. Nothing is sent before the experts run.
class AllReduceDispatcher final : public Dispatcher {
 public:
  explicit AllReduceDispatcher(const DispatcherOptions& options)
      : map_(options.placement),
        world_(options.world),
        slots_(options.placement->of_rank(options.plan.experts.index)),
        load_(options.load) {}

  DispatchKind kind() const override { return DispatchKind::allreduce; }

  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t /*width*/) const override {
    return map_.workspace_bytes(tokens, top_k);
  }

  std::int64_t most_rows(std::int64_t tokens) const override { return tokens; }

  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream /*stream*/) override {
    return detail::in_place(input, map_, slots_, load_, workspace);
  }

  void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& /*workspace*/, Stream stream) override {
    meanwhile();
    const auto count = static_cast<std::size_t>(out.rows * out.cols);
    world_->all_reduce_sum(static_cast<float*>(out.data), count, stream);
  }

 private:
  SlotMap map_;
  Group* world_;
  SlotRange slots_;
  SlotLoad* load_;
};

}  // namespace

std::unique_ptr<Dispatcher> detail::make_allreduce(const DispatcherOptions& options) {
  return std::make_unique<AllReduceDispatcher>(options);
}

}  // namespace sluice
