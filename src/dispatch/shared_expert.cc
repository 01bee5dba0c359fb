#include "dispatch/shared_expert.h"

#include <algorithm>

#include "moe/stages.h"

namespace sluice {
namespace {

// Memory of add(): make(dtype, cols) is called for each tensor in a fixed order, so that sizing and taking can't
// differ.
struct Scratch {
  TensorView gate, up;  // [T, I] f32
  TensorView act;       // [T, I] compute type
  TensorView out;       // [T, H] f32, before the output gate
  TensorView scale;     // [T, 1] f32
};

template <class Make>
Scratch make_scratch(const SharedExpert& e, Make make) {
  Scratch s;
  if (e.gate) s.gate = make(DType::f32, e.up->rows);
  s.up = make(DType::f32, e.up->rows);
  s.act = make(e.compute, e.up->rows);
  if (e.output_gate) {
    s.out = make(DType::f32, e.down->rows);
    s.scale = make(DType::f32, 1);
  }
  return s;
}

std::size_t bytes_of(DType type, std::int64_t elements) {
  return static_cast<std::size_t>(dtype_bytes(type, elements));
}

}  // namespace

std::size_t SharedExpert::workspace_bytes(const Backend& backend, std::int64_t tokens) const {
  std::size_t bytes = 0;
  make_scratch(*this, [&](DType type, std::int64_t cols) {
    bytes += Workspace::rounded_bytes(bytes_of(type, tokens * cols));
    return TensorView{};
  });
  return bytes + backend.workspace_bytes(tokens, 0, std::max(up->rows, up->cols));
}

void SharedExpert::add(Backend& backend, const ConstTensorView& hidden, const ConstTensorView& hidden_f32,
                       const TensorView& out, Workspace& workspace, Stream stream, StageSink* stages) const {
  const Workspace::Scope scope(workspace);
  const std::int64_t tokens = hidden.rows;
  const Scratch s = make_scratch(*this, [&](DType type, std::int64_t cols) {
    return dense_view(workspace.take_bytes(bytes_of(type, tokens * cols)), type, tokens, cols);
  });
  const auto linear = [&](const ConstTensorView& x, const DenseWeight& weight, const TensorView& y, bool accumulate) {
    backend.linear({x, &weight, nullptr, y, accumulate}, workspace, stream);
  };
  if (gate) linear(hidden, *gate, s.gate, false);
  linear(hidden, *up, s.up, false);
  backend.activate(activation, s.gate, s.up, s.act, stream);
  if (stages != nullptr) stages->record(stage::kSharedIntermediate, s.act, nullptr);
  if (!output_gate) return linear(s.act, *down, out, true);
  linear(s.act, *down, s.out, false);
  linear(hidden_f32, *output_gate, s.scale, false);
  backend.add_gated(out, s.out, s.scale, stream);
}

}  // namespace sluice
