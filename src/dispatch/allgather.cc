#include <algorithm>
#include <numeric>

#include "dispatch/home_tokens.h"
#include "dispatch/parts.h"
#include "dispatch/row_records.h"

namespace sluice {
namespace {

std::size_t bytes_of(std::int64_t count, std::int64_t element_bytes) {
  return Workspace::rounded_bytes(static_cast<std::size_t>(count * element_bytes));
}

// Every rank gets the tokens of all and computes what its experts add to them; the sums are added on the way home.
class AllGatherDispatcher final : public Dispatcher {
 public:
  explicit AllGatherDispatcher(const DispatcherOptions& options)
      : options_(options),
        map_(options.placement),
        home_(options),
        slots_(options.placement->of_rank(options.plan.experts.index)),
        rows_(static_cast<std::size_t>(options.world->size())),
        offsets_(rows_.size()),
        counts_(rows_.size()) {}

  DispatchKind kind() const override { return DispatchKind::allgather; }

  std::int64_t most_rows(std::int64_t tokens) const override { return options_.plan.dp.count * tokens; }

  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t width) const override {
    const std::int64_t rows = most_rows(tokens);
    return bytes_of(rows, detail::record_format(options_, width, top_k).bytes()) +
           2 * bytes_of(rows * top_k, sizeof(float)) + bytes_of(rows * width, sizeof(float)) +
           map_.workspace_bytes(home_.most(tokens), top_k) +
           detail::Payloads::workspace_bytes(detail::record_format(options_, width, top_k), home_.most(tokens));
  }

  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) override {
    exchange_counts(input.hidden.rows, stream);
    const std::int64_t total = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
    const RecordFormat format = detail::record_format(options_, input.hidden.cols, input.top_k);
    const Records records{format, workspace.take<std::byte>(total * format.bytes()), total};
    auto* ids = workspace.take<SlotId>(total * input.top_k);
    auto* weights = workspace.take<float>(total * input.top_k);
    sum_ = dense_view(workspace.take<float>(total * input.hidden.cols), DType::f32, total, input.hidden.cols);
    gather(input, records, workspace, stream);
    for (std::int64_t r = 0; r < total; ++r) {
      std::copy_n(records.ids(r), input.top_k, ids + r * input.top_k);
      std::copy_n(records.weights(r), input.top_k, weights + r * input.top_k);
    }
    Dispatched d = detail::dispatched_rows(records);
    d.ids = ids;
    d.weights = weights;
    d.top_k = input.top_k;
    d.slots = slots_;
    d.sum = sum_;
    detail::count_rows(d, options_.load);
    return d;
  }

  void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& /*workspace*/, Stream stream) override {
    meanwhile();
    set_parts(out.cols);
    options_.world->reduce_scatter_sum(static_cast<const float*>(sum_.data), static_cast<float*>(home_.rows(out).data),
                                       parts(), stream);
    home_.complete(out, stream);
  }

 private:
  RankParts parts() const { return {offsets_.data(), counts_.data()}; }

  // Of `unit` bytes or floats a row.
  void set_parts(std::int64_t unit) {
    std::int64_t at = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      offsets_[r] = at;
      counts_[r] = rows_[r] * unit;
      at += counts_[r];
    }
  }

  // How many tokens each rank brings.
  void exchange_counts(std::int64_t tokens, Stream stream) {
    std::int64_t& own = rows_[static_cast<std::size_t>(options_.plan.rank)];
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      offsets_[r] = static_cast<std::int64_t>(r * sizeof(own));
      counts_[r] = sizeof(own);
    }
    own = home_.share(tokens).count();
    options_.world->all_gather(&own, rows_.data(), parts(), stream);
  }

  void gather(const DispatchInput& input, const Records& records, Workspace& workspace, Stream stream) {
    const Workspace::Scope scope(workspace);
    set_parts(records.format.bytes());
    const Share home = home_.share(input.hidden.rows);
    Records own = records.from(offsets_[static_cast<std::size_t>(options_.plan.rank)] / records.format.bytes());
    own.rows = home.count();
    const SlotId* slots =
        map_.map(input.ids + home.begin * input.top_k, home.count(), input.top_k, home.begin, workspace);
    const detail::Payloads payloads(records.format, input.hidden, home, workspace);
    for (std::int64_t i = 0; i < own.rows; ++i) {
      payloads.copy(i, own.data + i * own.format.bytes());
      std::copy_n(slots + i * input.top_k, input.top_k, own.ids(i));
      std::copy_n(input.weights + (home.begin + i) * input.top_k, input.top_k, own.weights(i));
    }
    options_.world->all_gather(own.data, records.data, parts(), stream);
  }

  DispatcherOptions options_;
  SlotMap map_;
  HomeTokens home_;
  SlotRange slots_;
  std::vector<std::int64_t> rows_;              // [ranks] tokens that each brought
  std::vector<std::int64_t> offsets_, counts_;  // [ranks] parts of the exchange under way
  TensorView sum_;                              // [tokens of all, W] f32
};

}  // namespace

std::unique_ptr<Dispatcher> detail::make_allgather(const DispatcherOptions& options) {
  return std::make_unique<AllGatherDispatcher>(options);
}

}  // namespace sluice
