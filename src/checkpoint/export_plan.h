// The plan of an export: which tensors the new checkpoint gets and where the values of each come from. Built from names
// and shapes alone, before any weight is read.
//
// Called by export.cc. Plain data; entries point into the Checkpoint, which outlives the plan. Throws Error naming the
// module that cannot be written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/export.h"

namespace sluice::ckpt {

inline constexpr int kNoTensor = -1;

// One matrix to write. Indices count the declarations of its item.
struct MatrixJob {
  enum class Part : std::uint8_t { gate, up, gate_up, down, dense };
  Part part = Part::dense;
  std::string base;  // module, for messages and calibration
  std::int64_t layer = kOutsideLayers;
  std::int64_t expert = 0;             // experts
  std::string role;                    // dense: of the WeightSource, or
  const TensorEntry* entry = nullptr;  // dense: a plain tensor that no role names
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool quantised = true;    // false: written in bf16, whatever the target
  bool transposed = false;  // bf16 only
  int codes = kNoTensor;
  int scales = kNoTensor;
  int tensor_scale = kNoTensor;
  int input_scale = kNoTensor;
  std::int64_t first_row = 0;                                 // within a stacked tensor
  ExpertNames::GateUp order = ExpertNames::GateUp::separate;  // of gate_up
};

// A bias of one expert, written in bf16.
struct BiasJob {
  MatrixJob::Part part = MatrixJob::Part::down;
  std::int64_t expert = 0;
  int tensor = kNoTensor;
  std::int64_t first = 0;  // element within a stacked tensor
  ExpertNames::GateUp order = ExpertNames::GateUp::separate;
};

// What one thread does at once. Gate and up of a unit (q, k and v likewise) share one tensor scale, because several
// readers keep a single one for matrices that they fuse.
struct ExportUnit {
  const TensorEntry* copy = nullptr;  // byte for byte into declaration 0 of the item; else
  std::vector<MatrixJob> matrices;
  std::vector<BiasJob> biases;
};

// Tensors that must share a shard, with the units that fill them.
struct ExportItem {
  std::int64_t layer = kOutsideLayers;
  std::vector<TensorDecl> tensors;
  std::vector<ExportUnit> units;
};

struct ExportPlan {
  std::vector<ExportItem> items;
  std::vector<std::string> excluded;   // linear modules that are not quantised, in the order of the files
  std::vector<std::string> quantised;  // modules outside routed experts that are
  std::int64_t quantised_count = 0;
  std::vector<std::string> notes;
};

ExportPlan make_plan(const ExportSource& source, const ExportOptions& options);

// "a.b.weight" > "a.b"; a name without the ending stays.
std::string module_of(std::string_view tensor_name);

}  // namespace sluice::ckpt
