#include "cuda/run_hopper.h"

#include <algorithm>

#include "core/workspace.h"

namespace sluice::cuda {
namespace {

constexpr std::int32_t kSmallestTile = sm90::kRowGroup;

InputForm input_form(const HopperExperts& experts, bool quantised) {
  switch (experts.shape.format) {
    case sm90::Format::fp8_block:
      return InputForm::fp8_group;
    case sm90::Format::fp8_tensor:
      return quantised || experts.input_scales.gemm1 != 0.0f ? InputForm::fp8_static : InputForm::fp8_dynamic;
    default:
      return InputForm::bf16;
  }
}

// GEMM1 input as the caller has it.
struct CallerRows {
  const std::uint8_t* data;
  std::int64_t row_bytes, width_bytes;
};

CallerRows caller_rows(const HopperExperts& experts, const RunArgs& run) {
  const ConstTensorView& rows = run.quantized.codes ? run.quantized.codes : run.hidden;
  const std::int64_t each = run.quantized.codes ? 1 : 2;
  return {static_cast<const std::uint8_t*>(rows.data), rows.row_stride * each, experts.layer.width() * each};
}

sm90::TokenRows token_rows(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run) {
  if (s.rows == RowsAs::sorted) return {};
  const std::int64_t row_bytes = std::int64_t{sm90::extents(s.shape).k_blocks1} * sm90::kBlockBytes;
  if (s.rows == RowsAs::by_token) return {r.x, row_bytes, static_cast<std::int32_t>(row_bytes), r.row_token};
  const CallerRows rows = caller_rows(experts, run);
  return {rows.data, rows.row_bytes, static_cast<std::int32_t>(rows.width_bytes), r.row_token};
}

}  // namespace

RowsAs rows_of(const HopperExperts& experts, const RunSizes& s, const RunArgs& run) {
  const std::int64_t by_token_bytes = s.tokens * sm90::extents(s.shape).k_blocks1 * sm90::kBlockBytes;
  const bool gathers = s.plan.gather && !s.plan.decode && !s.route().few;
  if (!gathers || by_token_bytes > sm90::kMostGatheredBytes) return RowsAs::sorted;
  const bool made = s.shape.format != sm90::Format::bf16 && !run.quantized.codes;
  if (made || experts.layer.weight_on_input) return RowsAs::by_token;
  const CallerRows rows = caller_rows(experts, run);
  const bool wide = rows.row_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0;
  return wide && rows.row_bytes * s.tokens <= sm90::kMostGatheredBytes ? RowsAs::in_place : RowsAs::by_token;
}

std::size_t workspace_bytes_of(RunSizes s) {
  s.plan.token_tile = kSmallestTile;  // gives the most tiles
  std::size_t bytes = 0;
  make_scratch(s, [&](std::size_t n) -> void* {
    bytes += Workspace::rounded_bytes(n) + sm90::kBlockBytes;
    return nullptr;
  });
  // Fewer local experts may be counted by more blocks (route_plan.h); the counts are small either way.
  return bytes + static_cast<std::size_t>(s.shape.experts) * static_cast<std::size_t>(s.processors) * 4;
}

bool writes_directly(const HopperExperts& experts, const RunArgs& run) {
  const TensorView& out = run.sum;
  const bool wide = out.row_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0;
  return static_cast<bool>(out) && run.top_k == 1 && out.dtype == DType::bf16 && wide && run.stages == nullptr &&
         experts.layer.width() == experts.shape.hidden;
}

RouteArgs route_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run) {
  RouteArgs a;
  a.plan = s.route();
  a.ids = reinterpret_cast<const std::int32_t*>(run.ids);
  a.valid_tokens = run.valid_tokens;
  a.first_slot = run.slots.first;
  a.form = input_form(experts, static_cast<bool>(run.quantized.codes));
  if (run.quantized.codes) {
    const ConstTensorView& scales = run.quantized.sum_scales;
    a.codes = static_cast<const std::uint8_t*>(run.quantized.codes.data);
    a.code_row_stride = run.quantized.codes.row_stride;
    a.code_scales = static_cast<const float*>(scales.data);
    a.code_scale_row_stride = scales.rows == 1 ? 0 : scales.row_stride;
  } else {
    a.hidden = run.hidden.data;
    a.hidden_row_stride = run.hidden.row_stride;
  }
  a.width = experts.layer.width();
  a.k_blocks = sm90::extents(s.shape).k_blocks1;
  a.input_weights = experts.layer.weight_on_input ? run.weights : nullptr;
  a.static_scale = experts.input_scales.gemm1;
  a.later = experts.layer.weight_on_input ? nullptr : run.weights;
  a.rows = s.rows;
  if (s.direct || s.rows != RowsAs::sorted) a.row_token = r.row_token;
  if (s.direct) {
    a.output = run.sum.data;
    a.output_row_stride = run.sum.row_stride;
  }
  a.scratch = r.route_scratch;
  a.route_row = r.route_row;
  a.tile_count = r.tile_count;
  a.published = r.published;
  a.tiles = r.tiles;
  a.max_tiles = s.max_tiles();
  a.ready = r.ready;
  a.image = r.x;
  a.scales = r.x_scale;
  a.padded_rows = s.padded_rows();
  return a;
}

sm90::ExpertArgs expert_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run) {
  sm90::ExpertArgs a;
  a.shape = s.shape;
  a.plan = s.plan;
  a.weights = experts.packed;
  a.routes = {r.tile_count, r.tiles, s.max_tiles(), r.ready, r.published};
  a.activation = experts.layer.activation;
  a.padded_rows = s.padded_rows();
  a.x = r.x;
  a.x_rows = token_rows(experts, s, r, run);
  a.x_scale = r.x_scale;
  a.h = r.h;
  a.h_scale = r.h_scale;
  a.h_static_scale = experts.input_scales.gemm2;
  a.h_f32 = r.h_f32;
  a.slot_rows = r.slot_rows;
  if (s.direct) {
    const float* weights = experts.layer.weight_on_input ? nullptr : run.weights;
    a.direct = {run.sum.data, run.sum.row_stride, r.row_token, weights};
  }
  a.sm_count = experts.processors;
  return a;
}

sm90::DecodeArgs decode_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run) {
  const TensorView& out = run.sum ? run.sum : run.routes;
  sm90::DecodeArgs a;
  a.shape = s.shape;
  a.weights = experts.packed;
  a.activation = experts.layer.activation;
  a.tokens = s.tokens;
  a.top_k = s.top_k;
  a.ids = reinterpret_cast<const std::int32_t*>(run.ids);
  a.valid_tokens = run.valid_tokens;
  a.first_slot = run.slots.first;
  a.hidden = run.hidden.data;
  a.hidden_row_stride = run.hidden.row_stride;
  (experts.layer.weight_on_input ? a.input_weights : a.sum_weights) = run.weights;
  a.x_static_scale = experts.input_scales.gemm1;
  a.h_static_scale = experts.input_scales.gemm2;
  a.out = out.data;
  a.out_row_stride = out.row_stride;
  a.out_bf16 = out.dtype == DType::bf16;
  a.routes = static_cast<bool>(run.routes);
  a.state = {nullptr, r.decode_flags, r.decode_h, 0};
  if (run.stages != nullptr) {
    a.stages = {r.route_row, s.padded_rows(), r.x, r.x_scale, r.h, r.h_scale, r.slot_rows};
  }
  a.sm_count = experts.processors;
  return a;
}

FinalizeArgs finalize_args(const HopperExperts& experts, const RunScratch& r, const RunArgs& run) {
  FinalizeArgs a;
  const TensorView& out = run.sum ? run.sum : run.routes;
  a.slot_rows = r.slot_rows;
  a.slot_row_stride = experts.shape.hidden;
  a.route_row = r.route_row;
  a.weights = experts.layer.weight_on_input ? nullptr : run.weights;
  a.tokens = run.tokens();
  a.top_k = run.top_k;
  a.width = experts.layer.width();
  a.out = out.data;
  a.out_row_stride = out.row_stride;
  a.out_bf16 = out.dtype == DType::bf16;
  a.routes = static_cast<bool>(run.routes);
  return a;
}

}  // namespace sluice::cuda
