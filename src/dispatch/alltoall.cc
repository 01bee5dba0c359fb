#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "core/error.h"
#include "dispatch/home_tokens.h"
#include "dispatch/parts.h"
#include "dispatch/route_list.h"

namespace sluice {
namespace {

std::size_t bytes_of(std::int64_t count, std::int64_t element_bytes) {
  return Workspace::rounded_bytes(static_cast<std::size_t>(count * element_bytes));
}

// Parts of an exchange, in bytes, one a rank.
struct Parts {
  std::vector<std::int64_t> offsets, counts;
  explicit Parts(std::size_t ranks) : offsets(ranks), counts(ranks) {}
  RankParts view() const { return {offsets.data(), counts.data()}; }
  void set(const std::vector<std::int64_t>& units, std::int64_t unit_bytes) {
    std::int64_t at = 0;
    for (std::size_t r = 0; r < units.size(); ++r) {
      offsets[r] = at;
      counts[r] = units[r] * unit_bytes;
      at += counts[r];
    }
  }
};

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// A row travels once to each rank that holds an expert of it, with the slots that it is for; the slot rows come back
// and are summed at home, in slot order, as a runner with all experts would.
class AllToAllDispatcher final : public Dispatcher {
 public:
  explicit AllToAllDispatcher(const DispatcherOptions& options)
      : options_(options),
        map_(options.placement),
        home_(options),
        slots_(options.placement->of_rank(options.plan.rank)),
        list_(*options.placement),
        arrived_rows_(static_cast<std::size_t>(options.world->size())),
        arrived_routes_(arrived_rows_.size()),
        send_(arrived_rows_.size()),
        receive_(arrived_rows_.size()) {}

  DispatchKind kind() const override { return DispatchKind::alltoall; }

  std::int64_t most_rows(std::int64_t tokens) const override { return options_.plan.dp.count * tokens; }

  // Linear in the tokens of all ranks, also when all go to one expert: what one rank would need for all of them, and
  // what is on the wire.
  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t width) const override {
    const RecordFormat format = detail::record_format(options_, width, top_k);
    const std::int64_t rows = most_rows(tokens), home = home_.most(tokens);
    const std::int64_t sent = home * std::min<std::int64_t>(top_k, options_.world->size());
    const std::int64_t slot_row = dtype_bytes(slot_dtype(), width);
    const std::size_t arriving =
        bytes_of(rows, format.bytes()) + 2 * bytes_of(rows * top_k, sizeof(float)) + bytes_of(rows * top_k, slot_row);
    const std::size_t leaving = map_.workspace_bytes(home, top_k) + bytes_of(home * top_k, sizeof(std::int32_t)) +
                                bytes_of(sent, format.bytes()) + detail::Payloads::workspace_bytes(format, home);
    return arriving + leaving + bytes_of(home * top_k, slot_row);
  }

  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) override {
    const Share home = home_.share(input.hidden.rows);
    top_k_ = input.top_k;
    weights_ = input.weights + home.begin * top_k_;
    const SlotId* slots = map_.map(input.ids + home.begin * top_k_, home.count(), top_k_, home.begin, workspace);
    list_.count({slots, weights_, home.count(), top_k_});
    exchange_counts(stream);

    const RecordFormat format = detail::record_format(options_, input.hidden.cols, top_k_);
    const std::int64_t rows = total(arrived_rows_);
    const Records arrived{format, workspace.take<std::byte>(rows * format.bytes()), rows};
    auto* row_of = workspace.take<std::int32_t>(home.count() * top_k_);
    exchange_rows(input, {slots, weights_, home.count(), top_k_}, arrived, row_of, workspace, stream);
    row_of_ = row_of;
    return arrived_work(arrived, workspace);
  }

  void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& workspace, Stream stream) override {
    close_gaps();
    const std::int64_t row_bytes = dtype_bytes(routes_.dtype, routes_.cols);
    const std::int64_t home_routes = total(list_.routes());
    const TensorView back = dense_view(workspace.take_bytes(static_cast<std::size_t>(home_routes * row_bytes)),
                                       routes_.dtype, home_routes, routes_.cols);
    send_.set(arrived_routes_, row_bytes);
    receive_.set(list_.routes(), row_bytes);
    options_.world->start_all_to_all({routes_.data, send_.view(), back.data, receive_.view()}, stream);
    work_beside_exchange(meanwhile, stream);
    options_.world->finish_all_to_all(stream);
    const float* weights = options_.weight_on_input ? nullptr : weights_;
    options_.backend->sum_slot_rows({back, row_of_, weights, top_k_, home_.rows(out)}, stream);
    home_.complete(out, stream);
  }

 private:
  DType slot_dtype() const { return recipe_info(options_.recipe).slot_dtype; }

  // Peers read and write the buffers of the exchange, which go with an error: so it ends first.
  void work_beside_exchange(FunctionRef<void()> work, Stream stream) {
    try {
      work();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      try {
        options_.world->finish_all_to_all(stream);
      } catch (const Error&) {
        std::rethrow_exception(error);  // the exchange was given up: nobody looks at its buffers either
      }
      throw;
    }
  }

  void exchange_counts(Stream stream) {
    const std::vector<std::int64_t> one(arrived_rows_.size(), 1);
    send_.set(one, sizeof(std::int64_t));
    options_.world->all_to_all({list_.rows().data(), send_.view(), arrived_rows_.data(), send_.view()}, stream);
  }

  void exchange_rows(const DispatchInput& input, const Routes& routes, const Records& arrived, std::int32_t* row_of,
                     Workspace& workspace, Stream stream) {
    const Workspace::Scope scope(workspace);
    const RecordFormat& format = arrived.format;
    const std::int64_t sent_rows = total(list_.rows());
    const Records sent{format, workspace.take<std::byte>(sent_rows * format.bytes()), sent_rows};
    const Share home = home_.share(input.hidden.rows);
    const detail::Payloads payloads(format, input.hidden, home, workspace);
    list_.write(routes, payloads, sent, row_of);
    send_.set(list_.rows(), format.bytes());
    receive_.set(arrived_rows_, format.bytes());
    options_.world->all_to_all({sent.data, send_.view(), arrived.data, receive_.view()}, stream);
  }

  // The routes of the rows that arrived, as few columns as the row with the most of them needs.
  Dispatched arrived_work(const Records& arrived, Workspace& workspace) {
    std::int32_t columns = 1;
    for (std::int64_t r = 0; r < arrived.rows; ++r) columns = std::max(columns, listed(arrived, r));
    auto* ids = workspace.take<SlotId>(arrived.rows * columns);
    auto* weights = workspace.take<float>(arrived.rows * columns);
    for (std::int64_t r = 0; r < arrived.rows; ++r) {
      std::copy_n(arrived.ids(r), columns, ids + r * columns);
      std::copy_n(arrived.weights(r), columns, weights + r * columns);
    }
    const std::int64_t routes = arrived.rows * columns;
    const std::int64_t bytes = dtype_bytes(slot_dtype(), routes * arrived.format.width);
    routes_ =
        dense_view(workspace.take_bytes(static_cast<std::size_t>(bytes)), slot_dtype(), routes, arrived.format.width);
    arrived_ids_ = ids;
    columns_ = columns;
    Dispatched d = detail::dispatched_rows(arrived);
    d.ids = ids;
    d.weights = weights;
    d.top_k = columns;
    d.slots = slots_;
    d.routes = routes_;
    detail::count_rows(d, options_.load);
    return d;
  }

  static std::int32_t listed(const Records& records, std::int64_t row) {
    const SlotId* ids = records.ids(row);
    return static_cast<std::int32_t>(std::find(ids, ids + records.format.top_k, kNoSlot) - ids);
  }

  // Moves the slot rows together, in order, and counts those of each rank's rows. A row never moves behind one that is
  // still to be moved.
  void close_gaps() {
    const auto row_bytes = static_cast<std::size_t>(dtype_bytes(routes_.dtype, routes_.cols));
    auto* data = static_cast<std::byte*>(routes_.data);
    std::size_t to = 0;
    std::int64_t row = 0;
    for (std::size_t rank = 0; rank < arrived_rows_.size(); ++rank) {
      const std::size_t first = to;
      for (const std::int64_t end = row + arrived_rows_[rank]; row < end; ++row) {
        for (std::int64_t from = row * columns_; from < (row + 1) * columns_; ++from) {
          if (arrived_ids_[from] == kNoSlot) continue;
          if (static_cast<std::size_t>(from) != to) {
            std::memcpy(data + to * row_bytes, data + static_cast<std::size_t>(from) * row_bytes, row_bytes);
          }
          ++to;
        }
      }
      arrived_routes_[rank] = static_cast<std::int64_t>(to - first);
    }
  }

  DispatcherOptions options_;
  SlotMap map_;
  HomeTokens home_;
  SlotRange slots_;
  RouteList list_;
  std::vector<std::int64_t> arrived_rows_, arrived_routes_;  // [ranks]
  Parts send_, receive_;

  // Of the tokens under way, from dispatch to combine.
  std::int32_t top_k_ = 0;
  const float* weights_ = nullptr;        // [home tokens, k]
  const std::int32_t* row_of_ = nullptr;  // [home tokens, k] among the slot rows that come back
  const SlotId* arrived_ids_ = nullptr;   // [arrived rows, columns]
  std::int32_t columns_ = 0;
  TensorView routes_;  // [arrived rows * columns, W]
};

}  // namespace

std::unique_ptr<Dispatcher> detail::make_alltoall(const DispatcherOptions& options) {
  return std::make_unique<AllToAllDispatcher>(options);
}

}  // namespace sluice
