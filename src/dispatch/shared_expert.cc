#include "dispatch/shared_expert.h"

#include <algorithm>

#include "moe/stages.h"

namespace sluice {
namespace {

// make(dtype, cols) is called for each tensor in a fixed order, so that sizing and taking can't differ.
struct Scratch {
  TensorView gate, up;  // [T, I] f32
  TensorView act;       // [T, I] compute type
};

template <class Make>
Scratch make_scratch(const SharedExpert& e, Make make) {
  Scratch s;
  if (e.gate) s.gate = make(DType::f32, e.up->rows);
  s.up = make(DType::f32, e.up->rows);
  s.act = make(e.compute, e.up->rows);
  return s;
}

template <class Make>
SharedExpert::Output make_output(const SharedExpert& e, Make make) {
  SharedExpert::Output o;
  o.rows = make(DType::f32, e.down->rows);
  if (e.output_gate) o.scale = make(DType::f32, 1);
  return o;
}

std::size_t bytes_of(DType type, std::int64_t elements) {
  return static_cast<std::size_t>(dtype_bytes(type, elements));
}

auto taker(Workspace& workspace, std::int64_t tokens) {
  return [&workspace, tokens](DType type, std::int64_t cols) {
    return dense_view(workspace.take_bytes(bytes_of(type, tokens * cols)), type, tokens, cols);
  };
}

// One call of run.
struct Pass {
  const SharedExpert& expert;
  Backend& backend;
  const ConstTensorView& hidden;
  const ConstTensorView& hidden_f32;
  Workspace& workspace;
  Stream stream;
  StageSink* stages;

  void linear(const ConstTensorView& x, const DenseWeight& weight, const TensorView& y, bool accumulate) const {
    backend.linear({x, &weight, nullptr, y, accumulate}, workspace, stream);
  }

  // down(act(gate(h), up(h))) into `rows`, or added to it.
  void run(const TensorView& rows, bool accumulate) const {
    const Workspace::Scope scope(workspace);
    const Scratch s = make_scratch(expert, taker(workspace, hidden.rows));
    if (expert.gate) linear(hidden, *expert.gate, s.gate, false);
    linear(hidden, *expert.up, s.up, false);
    backend.activate(expert.activation, s.gate, s.up, s.act, stream);
    if (stages != nullptr) stages->record(stage::kSharedIntermediate, s.act, nullptr);
    linear(s.act, *expert.down, rows, accumulate);
  }
};

}  // namespace

std::size_t SharedExpert::workspace_bytes(const Backend& backend, std::int64_t tokens) const {
  std::size_t bytes = 0;
  const auto size = [&](DType type, std::int64_t cols) {
    bytes += Workspace::rounded_bytes(bytes_of(type, tokens * cols));
    return TensorView{};
  };
  make_scratch(*this, size);
  make_output(*this, size);
  return bytes + backend.workspace_bytes(tokens, 0, std::max(up->rows, up->cols));
}

void SharedExpert::add(Backend& backend, const ConstTensorView& hidden, const ConstTensorView& hidden_f32,
                       const TensorView& out, Workspace& workspace, Stream stream, StageSink* stages) const {
  const Workspace::Scope scope(workspace);
  const Pass pass{*this, backend, hidden, hidden_f32, workspace, stream, stages};
  if (!output_gate) return pass.run(out, true);
  add_output(backend, run(backend, hidden, hidden_f32, workspace, stream, stages), out, stream);
}

SharedExpert::Output SharedExpert::run(Backend& backend, const ConstTensorView& hidden,
                                       const ConstTensorView& hidden_f32, Workspace& workspace, Stream stream,
                                       StageSink* stages) const {
  const Pass pass{*this, backend, hidden, hidden_f32, workspace, stream, stages};
  const Output output = make_output(*this, taker(workspace, hidden.rows));
  pass.run(output.rows, false);
  if (output_gate) pass.linear(hidden_f32, *output_gate, output.scale, false);
  return output;
}

void SharedExpert::add_output(Backend& backend, const Output& output, const TensorView& out, Stream stream) {
  if (output.scale) return backend.add_gated(out, output.rows, output.scale, stream);
  backend.add(out, output.rows, stream);
}

}  // namespace sluice
