#include "cuda/backend_cuda.h"

#include <algorithm>
#include <string>

#include "core/rounding.h"
#include "cuda/buffers.h"
#include "cuda/ops.h"
#include "cuda/status.h"

namespace sluice::cuda {
namespace {

// A projection as the file has it, in device memory.
class DeviceDense final : public DenseWeight {
 public:
  DotRule rule;
  DotMatrix matrix;
  float input_scale = 0.0f;
  Buffer codes, scales;
};

[[noreturn]] void not_here(const char* operation) {
  fail(ErrorCode::unsupported, std::string(operation) + " on a GPU",
       "the operations of a MoE layer: `sluice layer` and `sluice bench moe`", "--device cpu runs whole models");
}

const DeviceDense& own(const DenseWeight* weight) {
  const auto* dense = dynamic_cast<const DeviceDense*>(weight);
  if (dense == nullptr) fail(ErrorCode::usage, "the CUDA backend was given a weight of another backend");
  return *dense;
}

std::int64_t extent(std::int64_t rows, std::int64_t row_stride, std::int64_t cols, std::int64_t col_stride) {
  return (rows - 1) * row_stride + (cols - 1) * col_stride + 1;
}

Buffer upload(const void* data, std::int64_t bytes, int device) {
  Buffer buffer = device_buffer(static_cast<std::size_t>(bytes), device);
  copy_to_device(buffer.data(), data, static_cast<std::size_t>(bytes), "uploading a weight");
  return buffer;
}

bool readable(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16 || type == DType::e4m3;
}

// Rows decoded to fp32 on the host, for formats that the kernels do not read.
DotMatrix decoded(const QuantTensor& w, Buffer& codes, int device) {
  std::vector<float> values(static_cast<std::size_t>(w.codes.rows * w.codes.cols));
  for (std::int64_t n = 0; n < w.codes.rows; ++n) decode_row(w, n, values.data() + n * w.codes.cols);
  codes = upload(values.data(), std::ssize(values) * std::int64_t{4}, device);
  return {{codes.data(), DType::f32, w.codes.rows, w.codes.cols, w.codes.cols, 1}, {}, 1.0f};
}

}  // namespace

CudaBackend::CudaBackend(int device_index) : info_(device_info(device_index)) {}

std::string CudaBackend::describe() const {
  return "cuda:" + std::to_string(info_.index) + ", " + info_.name + ", compute capability " +
         std::to_string(info_.major) + "." + std::to_string(info_.minor);
}

Buffer CudaBackend::alloc(std::size_t bytes) { return device_buffer(bytes, info_.index); }

void CudaBackend::copy_to_device(void* dst, const void* src, std::size_t bytes, Stream stream) {
  if (bytes > 0) check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, raw(stream)), "copying to the GPU");
}

void CudaBackend::copy_to_host(void* dst, const void* src, std::size_t bytes, Stream stream) {
  if (bytes > 0) check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, raw(stream)), "copying from the GPU");
}

void CudaBackend::synchronize(Stream stream) { check(cudaStreamSynchronize(raw(stream)), "waiting for the GPU"); }

std::unique_ptr<DenseWeight> CudaBackend::prepare_dense(const QuantTensor& weight, Recipe recipe) {
  const DeviceScope scope(info_.index);
  auto dense = std::make_unique<DeviceDense>();
  const MatrixView& c = weight.codes;
  const BlockScaleView& s = weight.block_scale;
  dense->rows = c.rows;
  dense->cols = c.cols;
  dense->input_scale = recipe == Recipe::fp8_tensor ? weight.input_scale : 0.0f;
  dense->rule = dot_rule(recipe, dense->input_scale);
  widest_inputs_ = std::max(widest_inputs_, c.cols);
  if (!readable(c.dtype)) {
    dense->matrix = decoded(weight, dense->codes, info_.index);
  } else {
    dense->codes =
        upload(c.data, dtype_bytes(c.dtype, extent(c.rows, c.row_stride, c.cols, c.col_stride)), info_.index);
    dense->matrix = {c, s, weight.tensor_scale};
    dense->matrix.codes.data = dense->codes.data();
    if (s.data != nullptr) {
      dense->scales = upload(s.data,
                             dtype_bytes(s.dtype, extent(ceil_div(c.rows, s.block_rows), s.row_stride,
                                                         ceil_div(c.cols, s.block_cols), s.col_stride)),
                             info_.index);
      dense->matrix.scale.data = dense->scales.data();
    }
  }
  dense->resident_bytes = static_cast<std::int64_t>(dense->codes.bytes() + dense->scales.bytes());
  return dense;
}

Buffer CudaBackend::prepare_vector(const QuantTensor& row) {
  const DeviceScope scope(info_.index);
  std::vector<float> values(static_cast<std::size_t>(row.codes.cols));
  decode_row(row, 0, values.data());
  return upload(values.data(), std::ssize(values) * std::int64_t{4}, info_.index);
}

std::size_t CudaBackend::workspace_bytes(std::int64_t tokens, std::int64_t, std::int64_t widest) const {
  const std::int64_t cols = std::max(widest_inputs_, widest);
  return Workspace::rounded_bytes(static_cast<std::size_t>(tokens * cols) * sizeof(float)) +
         Workspace::rounded_bytes(static_cast<std::size_t>(tokens * ceil_div(cols, kDotGroup)) * sizeof(float));
}

void CudaBackend::linear(const LinearArgs& args, Workspace& workspace, Stream s) {
  const Workspace::Scope scope(workspace);
  const DeviceDense& dense = own(args.weight);
  LinearLaunch launch;
  launch.x = args.x;
  launch.rule = dense.rule;
  launch.weight = dense.matrix;
  launch.static_scale = dense.input_scale;
  launch.bias = args.bias;
  launch.y = args.y;
  launch.accumulate = args.accumulate;
  launch.rows = workspace.take<float>(args.x.rows * dense.cols);
  launch.scales = workspace.take<float>(args.x.rows * ceil_div(dense.cols, kDotGroup));
  check(launch_linear(launch, raw(s)), "a dense projection");
}

void CudaBackend::activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                           const TensorView& out, Stream s) {
  check(launch_activate(spec, gate, up, out, raw(s)), "an activation");
}

void CudaBackend::route(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output, Stream s) {
  if (spec.experts > kChoiceMostExperts) {
    fail(ErrorCode::unsupported, "routing over " + std::to_string(spec.experts) + " experts on a GPU",
         "at most " + std::to_string(kChoiceMostExperts));
  }
  if (spec.method == RoutingMethod::hash) {
    fail(ErrorCode::unsupported, "hash routing on a GPU", "a method that reads logits", "--device cpu has it");
  }
  check(launch_choice(spec, input, output, raw(s)), "routing");
}

void CudaBackend::add(const TensorView& into, const ConstTensorView& x, Stream s) {
  check(launch_add(into, x, raw(s)), "an addition");
}

void CudaBackend::add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate, Stream s) {
  check(launch_add_gated(into, x, gate, raw(s)), "a gated addition");
}

std::unique_ptr<DenseWeight> CudaBackend::prepare_heads(const std::vector<QuantTensor>&, DType) {
  not_here("projections by head");
}
std::unique_ptr<DenseWeight> CudaBackend::prepare_embedding(const QuantTensor&) { not_here("embedding"); }
std::unique_ptr<RopeTable> CudaBackend::make_rope(const std::vector<float>&, float, std::int64_t) { not_here("rope"); }
std::unique_ptr<KvCache> CudaBackend::make_kv(const KvSpec&, std::int64_t) { not_here("a KV cache"); }
void CudaBackend::embed(const DenseWeight&, const std::int32_t*, const TensorView&, Stream) { not_here("embedding"); }
void CudaBackend::rms_norm(const NormArgs&, Stream) { not_here("RMS norm"); }
void CudaBackend::head_linear(const HeadLinearArgs&, Workspace&, Stream) { not_here("projections by head"); }
void CudaBackend::rope(const RopeArgs&, Stream) { not_here("rope"); }
void CudaBackend::kv_store(const KvStoreArgs&, Stream) { not_here("a KV cache"); }
void CudaBackend::attention(const AttentionArgs&, Workspace&, Stream) { not_here("attention"); }
void CudaBackend::gather_rows(const ConstTensorView&, const std::int32_t*, const TensorView&, Stream) {
  not_here("gathering rows");
}
void CudaBackend::sum_slot_rows(const SlotSumArgs&, Stream) { not_here("summing slot rows"); }
void CudaBackend::sample(const SampleArgs&, Workspace&, Stream) { not_here("sampling"); }

}  // namespace sluice::cuda
