#include "dispatch/dispatcher.h"

#include <cstring>
#include <string>

#include "core/error.h"
#include "dispatch/after_experts.h"
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

bool rows_travel(const DispatcherOptions& o) {
  const DispatchKind kind = dispatch_kind(o.plan.sizes);
  return kind == DispatchKind::allgather || kind == DispatchKind::alltoall;
}

void check_ways(const DispatcherOptions& o) {
  require(!o.quantized_rows || can_quantize_rows(o),
          "quantised rows in recipe " + std::string(recipe_info(o.recipe).name) + ", input scale " +
              std::to_string(o.input_scale),
          "nvfp4-w4a4 with an input scale above zero, weights on the output, and dp attention or a2a");
  const bool cpu = o.world->device().kind == DeviceKind::cpu;
  if (!cpu && (rows_travel(o) || !SlotMap(o.placement).identity())) {
    fail(ErrorCode::unsupported, "dispatcher: tokens of a GPU cannot travel yet, nor go to copies of experts",
         "CPU ranks, or ranks without dp attention, a2a and copies");
  }
  require(!rows_travel(o) || o.backend != nullptr, "there is no backend", "that of the rank");
}

void check(const DispatcherOptions& o) {
  require(o.placement != nullptr, "there is no placement", "one over the ranks of --ep");
  require(o.placement->ranks() == o.plan.experts.count,
          "the placement is over " + std::to_string(o.placement->ranks()) + " ranks",
          std::to_string(o.plan.experts.count));
  const bool host = o.backend == nullptr || o.backend->device().kind == DeviceKind::cpu;
  require(o.load == nullptr || host, "rows of a GPU's slots are to be counted", "no load, or a CPU rank");
  if (o.plan.sizes.tp == 1) return;
  check_group(o.world, "world", o.plan.rank, o.plan.sizes.tp);
  check_ways(o);
  if (o.plan.attention.whole() || o.plan.dp.whole()) return;
  check_group(o.attention, "attention", o.plan.attention.index, o.plan.attention.count);
}

}  // namespace

DispatchKind dispatch_kind(const ParallelSizes& sizes) {
  AfterExperts after;
  after.sizes = sizes;
  after.scattered_by_dp = sizes.dp > 1;
  if (sums_after_experts(after)) return DispatchKind::allreduce;
  if (sizes.tp == 1) return DispatchKind::local;
  return sizes.a2a == MoeA2a::alltoall ? DispatchKind::alltoall : DispatchKind::allgather;
}

bool can_quantize_rows(const DispatcherOptions& o) {
  return rows_travel(o) && quantizes_to_nvfp4(o.recipe) && o.input_scale > 0.0f && !o.weight_on_input;
}

std::unique_ptr<Dispatcher> make_dispatcher(const DispatcherOptions& options) {
  check(options);
  switch (dispatch_kind(options.plan.sizes)) {
    case DispatchKind::local:
      return detail::make_local(options);
    case DispatchKind::allreduce:
      return detail::make_allreduce(options);
    case DispatchKind::allgather:
      return detail::make_allgather(options);
    case DispatchKind::alltoall:
      return detail::make_alltoall(options);
  }
  fail(ErrorCode::usage, "dispatcher: an unknown kind");
}

namespace detail {

void count_rows(const Dispatched& d, SlotLoad* load) {
  if (load == nullptr) return;
  load->rows.resize(static_cast<std::size_t>(d.slots.count));
  const std::int64_t tokens = d.quantized.codes ? d.quantized.codes.rows : d.hidden.rows;
  for (std::int64_t r = 0; r < tokens * d.top_k; ++r) {
    if (d.slots.contains(d.ids[r])) ++load->rows[static_cast<std::size_t>(raw(d.ids[r]) - d.slots.first)];
  }
}

Dispatched in_place(const DispatchInput& input, const SlotMap& map, SlotRange slots, SlotLoad* load,
                    Workspace& workspace) {
  Dispatched d;
  d.hidden = input.hidden;
  d.ids = map.map(input.ids, input.hidden.rows, input.top_k, 0, workspace);
  d.weights = input.weights;
  d.top_k = input.top_k;
  d.slots = slots;
  count_rows(d, load);
  return d;
}

RecordFormat record_format(const DispatcherOptions& o, std::int64_t width, std::int32_t top_k) {
  return {o.recipe == Recipe::f32 ? DType::f32 : DType::bf16, width, top_k,
          o.quantized_rows ? 1.0f / o.input_scale : 0.0f};
}

Dispatched dispatched_rows(const Records& records) {
  Dispatched d;
  if (records.format.nvfp4()) {
    d.quantized = records.quantized();
  } else {
    d.hidden = records.hidden();
  }
  return d;
}

Payloads::Payloads(const RecordFormat& format, const ConstTensorView& hidden, const Share& home, Workspace& workspace)
    : data_(static_cast<const std::byte*>(hidden.data) + dtype_bytes(hidden.dtype, home.begin * hidden.row_stride)),
      pitch_bytes_(dtype_bytes(hidden.dtype, hidden.row_stride)),
      bytes_(static_cast<std::size_t>(format.payload_bytes())) {
  if (!format.nvfp4()) return;
  auto* values = workspace.take<float>(format.width);
  auto* encoded = workspace.take<std::byte>(home.count() * format.payload_bytes());
  pitch_bytes_ = format.payload_bytes();
  for (std::int64_t i = 0; i < home.count(); ++i) {
    encode_payload(format, hidden, home.begin + i, values, encoded + i * pitch_bytes_);
  }
  data_ = encoded;
}

std::size_t Payloads::workspace_bytes(const RecordFormat& format, std::int64_t tokens) {
  if (!format.nvfp4()) return 0;
  return Workspace::rounded_bytes(static_cast<std::size_t>(format.width) * sizeof(float)) +
         Workspace::rounded_bytes(static_cast<std::size_t>(tokens * format.payload_bytes()));
}

void Payloads::copy(std::int64_t token, std::byte* to) const { std::memcpy(to, data_ + token * pitch_bytes_, bytes_); }

}  // namespace detail
}  // namespace sluice
