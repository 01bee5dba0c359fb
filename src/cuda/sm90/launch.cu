// From ExpertArgs to launches of the GEMM kernels.
#include <cfloat>
#include <limits>

#include "cuda/sm90/activation.cuh"
#include "cuda/sm90/gemm_launch.cuh"
#include "cuda/sm90/launch.h"
#include "cuda/sm90/quantize_rows.cuh"

namespace sluice::cuda::sm90 {

bool make_curve(const ActivationSpec& spec, GateCurve& curve) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kTwoSqrt2OverPi = 1.59576912160573071f;
  curve = {1.0f, 0.0f, kInf, kInf, kInf, 0.0f, false, false};
  switch (spec.kind) {
    case ActivationKind::swiglu:
      curve.plain = true;
      return true;
    case ActivationKind::geglu_tanh:
      curve.a1 = kTwoSqrt2OverPi;
      curve.a3 = kTwoSqrt2OverPi * 0.044715f;
      return true;
    case ActivationKind::swiglu_oai:
      curve.a1 = spec.alpha;
      curve.up_shift = spec.beta;
      curve.gate_limit = curve.up_limit = spec.limit;
      curve.clamped = true;
      return true;
    case ActivationKind::swiglu_clamped:
      curve.gate_limit = curve.up_limit = spec.limit;
      curve.clamped = true;
      return true;
    case ActivationKind::swiglu_step:
      curve.cap = curve.up_limit = spec.limit;
      return true;
    default:
      return false;
  }
}

namespace {

void set_tiles(GemmSide& s, bool half) {
  s.tile_records = half ? kTileRecords / 2 : kTileRecords;
  s.tiles = static_cast<std::int32_t>(ceil_div(s.records, s.tile_records));
}

GemmSide first_side(const ExpertArgs& a, const Extents& e) {
  GemmSide s{};
  s.weights = a.weights.w1;
  s.expert_bytes = static_cast<std::int64_t>(e.records1) * e.k_blocks1 * kRecordBytes;
  s.block_scale = a.weights.block_scale1;
  s.row_scale = a.weights.row_scale1;
  s.bias = a.weights.bias1;
  s.image = a.x;
  s.image_scale = a.x_scale;
  s.k_blocks = e.k_blocks1;
  s.records = e.records1;
  // The scale of a group of an fp8 intermediate needs its 128 features in one thread block.
  set_tiles(s, a.plan.half_tiles && a.shape.format == Format::bf16);

  return s;
}

GemmSide second_side(const ExpertArgs& a, const Extents& e) {
  GemmSide s{};
  s.weights = a.weights.w2;
  s.expert_bytes = static_cast<std::int64_t>(e.records2) * e.k_blocks2 * kRecordBytes;
  s.block_scale = a.weights.block_scale2;
  s.row_scale = a.weights.row_scale2;
  s.bias = a.weights.bias2;
  s.image = a.h;
  s.image_scale = a.h_static_scale > 0.0f ? nullptr : a.h_scale;
  s.image_static_scale = a.h_static_scale;
  s.k_blocks = e.k_blocks2;
  s.records = e.records2;
  set_tiles(s, a.plan.half_tiles);

  return s;
}

GemmArgs make_args(const ExpertArgs& a) {
  const Extents e = extents(a.shape);
  GemmArgs g{};
  g.sides[0] = first_side(a, e);
  g.sides[1] = second_side(a, e);
  g.x_rows = a.x_rows;
  g.routes = a.routes;
  g.padded_rows = a.padded_rows;
  g.h = a.h;
  g.h_scale = a.h_scale;
  g.h_static_scale = a.h_static_scale;
  g.slot_rows = static_cast<std::uint16_t*>(a.slot_rows);
  g.direct = a.direct;
  g.hidden = a.shape.hidden;
  g.activation = a.activation;
  return g;
}

cudaError_t launch(const ExpertArgs& a, const GemmArgs& g, bool curve, bool pdl, cudaStream_t stream) {
  const LaunchShape shape{a.plan.token_tile, a.plan.split, curve, a.sm_count, pdl};
  switch (a.shape.format) {
    case Format::bf16:
      return launch_gemm<Format::bf16>(g, shape, stream);
    case Format::fp8_block:
      return launch_gemm<Format::fp8_block>(g, shape, stream);
    case Format::fp8_tensor:
      return launch_gemm<Format::fp8_tensor>(g, shape, stream);
  }
  return cudaErrorInvalidValue;
}

// fp8_tensor without a static scale: the scale of a row needs all of it, so FC1, quantising and FC2 are three launches.
cudaError_t launch_in_three(const ExpertArgs& a, GemmArgs g, bool curve, cudaStream_t stream) {
  const Extents e = extents(a.shape);
  g.h_f32 = a.h_f32;
  g.h_f32_stride = e.k_blocks2 * 128;
  if (a.phase != Phase::fc2) {
    g.run_first = true;
    if (const cudaError_t error = launch(a, g, curve, a.pdl, stream); error != cudaSuccess) return error;
    const QuantizeRowsArgs q{a.routes, a.h_f32, g.h_f32_stride, e.k_blocks2, a.padded_rows, a.h, a.h_scale};
    if (const cudaError_t error = launch_quantize_rows(q, a.sm_count, stream); error != cudaSuccess) return error;
  }
  if (a.phase == Phase::fc1) return cudaSuccess;
  g.run_first = false;
  g.run_second = true;
  g.routes.published = nullptr;
  return launch(a, g, curve, a.pdl && a.phase == Phase::fc2, stream);
}

}  // namespace

ScratchBytes scratch_bytes(const Shape& shape, std::int64_t padded_rows, bool static_intermediate_scale) {
  const Extents e = extents(shape);
  const std::size_t rows = padded_rows;
  ScratchBytes b{};
  b.h = rows * e.k_blocks2 * kBlockBytes;
  if (shape.format == Format::fp8_block) b.h_scale = rows * e.k_blocks2 * sizeof(float);
  if (shape.format == Format::fp8_tensor && !static_intermediate_scale) {
    b.h_scale = rows * sizeof(float);
    b.h_f32 = rows * e.k_blocks2 * 128 * sizeof(float);
  }
  return b;
}

cudaError_t prepare_kernels() {
  if (const cudaError_t error = prepare_gemm<Format::bf16>(); error != cudaSuccess) return error;
  if (const cudaError_t error = prepare_gemm<Format::fp8_block>(); error != cudaSuccess) return error;
  return prepare_gemm<Format::fp8_tensor>();
}

cudaError_t launch_experts(const ExpertArgs& a, cudaStream_t stream) {
  const Extents e = extents(a.shape);
  if (a.plan.split > e.k_blocks1 || a.plan.split > e.k_blocks2) return cudaErrorInvalidValue;
  if (a.plan.half_tiles && a.plan.token_tile > kMostHalfTileRows) return cudaErrorInvalidValue;
  if (a.x_rows.rows != nullptr && a.plan.token_tile != kGatheredTile) return cudaErrorInvalidValue;

  GemmArgs g = make_args(a);
  const bool curve = make_curve(a.activation, g.curve);
  if (a.shape.format == Format::fp8_tensor && a.h_static_scale <= 0.0f) return launch_in_three(a, g, curve, stream);
  g.run_first = a.phase != Phase::fc2;
  if (!g.run_first) g.routes.published = nullptr;  // FC1 has counted items since
  g.run_second = a.phase != Phase::fc1;
  g.wait_ready = a.phase == Phase::both;
  return launch(a, g, curve, a.pdl, stream);
}

}  // namespace sluice::cuda::sm90
