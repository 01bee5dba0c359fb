#include "dispatch/dispatcher.h"

#include <string>

#include "core/error.h"
#include "dispatch/parts.h"

namespace sluice {
namespace {

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, "dispatcher: " + what, expected);
}

void check_group(const Group* group, const char* name, std::int32_t rank, std::int32_t size) {
  require(group != nullptr, "there is no group `" + std::string(name) + "`", std::to_string(size) + " ranks");
  require(group->size() == size && group->rank() == rank,
          "group `" + std::string(name) + "` has rank " + std::to_string(group->rank()) + " of " +
              std::to_string(group->size()),
          "rank " + std::to_string(rank) + " of " + std::to_string(size));
}

void check(const DispatcherOptions& o) {
  require(o.placement != nullptr, "there is no placement", "one over the ranks of --ep");
  require(o.placement->ranks() == o.plan.experts.count,
          "the placement is over " + std::to_string(o.placement->ranks()) + " ranks",
          std::to_string(o.plan.experts.count));
  if (o.plan.sizes.tp == 1) return;
  check_group(o.world, "world", o.plan.rank, o.plan.sizes.tp);
  if (o.plan.attention.whole() || o.plan.dp.whole()) return;
  check_group(o.attention, "attention", o.plan.attention.index, o.plan.attention.count);
}

}  // namespace

DispatchKind dispatch_kind(const ParallelSizes& sizes) {
  if (sizes.tp == 1) return DispatchKind::local;
  if (sizes.a2a == MoeA2a::alltoall) return DispatchKind::alltoall;
  return sizes.dp > 1 ? DispatchKind::allgather : DispatchKind::allreduce;
}

std::unique_ptr<Dispatcher> make_dispatcher(const DispatcherOptions& options) {
  check(options);
  switch (dispatch_kind(options.plan.sizes)) {
    case DispatchKind::local:
      return detail::make_local(options);
    case DispatchKind::allreduce:
      return detail::make_allreduce(options);
    case DispatchKind::allgather:
    case DispatchKind::alltoall:
      break;
  }
  fail(ErrorCode::unsupported, "this way of dispatching is not built yet", "ranks without dp attention and a2a");
}

void detail::count_rows(const Dispatched& d, SlotLoad* load) {
  if (load == nullptr) return;
  load->rows.resize(static_cast<std::size_t>(d.slots.count));
  const std::int64_t tokens = d.quantized.codes ? d.quantized.codes.rows : d.hidden.rows;
  for (std::int64_t r = 0; r < tokens * d.top_k; ++r) {
    if (d.slots.contains(d.ids[r])) ++load->rows[static_cast<std::size_t>(raw(d.ids[r]) - d.slots.first)];
  }
}

}  // namespace sluice
