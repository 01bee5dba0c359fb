// The shared expert of a MoE block: a dense FFN that every token goes through, added to the sum of the routed ones.
//
// Built at load time by the model and owned by its MoeLayer; nothing here allocates. A rank holds the whole of it, or a
// piece of I whose output is part of what ranks sum up.
#pragma once

#include <cstdint>
#include <memory>

#include "moe/backend.h"
#include "moe/runner.h"
#include "moe/spec.h"

namespace sluice {

struct SharedExpert {
  ActivationSpec activation;
  DType compute = DType::bf16;
  std::unique_ptr<DenseWeight> gate, up, down;  // [I, H], [I, H], [H, I]; no gate for activations without one
  std::unique_ptr<DenseWeight> output_gate;     // [1, H] for f32 compute, or nullptr

  bool partial = false;  // a piece of I: added before the sum over ranks instead of after

  // What run() leaves in the workspace.
  struct Output {
    TensorView rows;   // [T, H] f32
    TensorView scale;  // [T, 1] f32 before the sigmoid; absent without an output gate
  };

  // Of either way to add.
  std::size_t workspace_bytes(const Backend& backend, std::int64_t tokens) const;

  // out [T, H] f32 += down(act(gate(h), up(h))), with an output gate times sigmoid(output_gate(hidden_f32)).
  // hidden [T, H] has the compute type, hidden_f32 is the same before rounding. Products are summed in f32; the
  // activation is rounded once to the compute type.
  void add(Backend& backend, const ConstTensorView& hidden, const ConstTensorView& hidden_f32, const TensorView& out,
           Workspace& workspace, Stream stream, StageSink* stages = nullptr) const;

  // The same in two steps with the same bits, for an `out` that comes later.
  Output run(Backend& backend, const ConstTensorView& hidden, const ConstTensorView& hidden_f32, Workspace& workspace,
             Stream stream, StageSink* stages = nullptr) const;
  static void add_output(Backend& backend, const Output& output, const TensorView& out, Stream stream);
};

}  // namespace sluice
