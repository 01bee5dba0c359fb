#include "checkpoint/export_experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace sluice::ckpt {
namespace {

using Part = MatrixJob::Part;
using GateUp = ExpertNames::GateUp;

int declare(ExportItem& item, const TensorDecl& tensor) {
  if (tensor.name.empty()) return kNoTensor;
  item.tensors.push_back(tensor);
  return static_cast<int>(item.tensors.size()) - 1;
}

// The arrangement that the dialect wants: its own stacked one, the family's usual one, or one tensor an expert.
const ExpertNames& arrangement(const NameMap& names, const ExportTarget& target) {
  for (const ExpertNames& candidate : names.experts) {
    const bool stacked = candidate.files == ExpertNames::Files::stacked;
    if (target.is_plain()) return candidate;
    if (target.dialect == ExportDialect::gpt_oss ? stacked && candidate.gate_up_order == GateUp::interleaved
                                                 : !stacked && candidate.gate_up_order == GateUp::separate) {
      return candidate;
    }
  }
  fail(ErrorCode::unsupported, fmt::format("--dialect {} for this family", dialect_name(target.dialect)),
       target.dialect == ExportDialect::gpt_oss ? "a family with interleaved stacked experts"
                                                : "a family with names for single experts");
}

// One projection of the experts.
struct Projection {
  Part part;
  std::string pattern, bias_pattern;
  std::int64_t rows, cols;
};

std::vector<Projection> projections_of(const ExpertNames& names, const LayerSpec& spec) {
  const std::int64_t inner = spec.intermediate;
  std::vector<Projection> list;
  if (names.gate_up_order != GateUp::separate) {
    list.push_back({Part::gate_up, names.gate_up, names.gate_up_bias, 2 * inner, spec.width()});
  } else {
    if (is_gated(spec.activation.kind)) list.push_back({Part::gate, names.gate, names.gate_bias, inner, spec.width()});
    list.push_back({Part::up, names.up, names.up_bias, inner, spec.width()});
  }
  list.push_back({Part::down, names.down, names.down_bias, spec.width(), inner});
  return list;
}

MatrixJob job_of(const Projection& p, const ExpertNames& names, std::int64_t layer, std::int64_t expert) {
  MatrixJob job;
  job.part = p.part;
  job.base = module_of(expand(p.pattern, layer, expert));
  job.layer = layer;
  job.expert = expert;
  job.rows = p.rows;
  job.cols = p.cols;
  job.order = names.gate_up_order;
  return job;
}

ExportItem plan_single(const ExpertNames& names, const ExportTarget& target, std::int64_t layer, const LayerSpec& spec,
                       std::int64_t expert) {
  ExportItem item;
  item.layer = layer;
  ExportUnit& unit = item.units.emplace_back();
  for (const Projection& p : projections_of(names, spec)) {
    MatrixJob job = job_of(p, names, layer, expert);
    job.quantised = !target.is_plain();
    check_columns(target, job.base, p.cols);
    declare_module(item, job, target);
    if (target.is_plain()) item.tensors.back().name = expand(p.pattern, layer, expert);
    unit.matrices.push_back(std::move(job));
    if (!spec.has_bias) continue;
    const TensorDecl bias{expand(p.bias_pattern, layer, expert), DType::bf16, {p.rows}};
    unit.biases.push_back({p.part, expert, declare(item, bias), 0, names.gate_up_order});
  }
  return item;
}

// GPT-OSS: blocks of 16 bytes as a dimension of their own.
void declare_stacked_mxfp4(ExportItem& item, MatrixJob& job, const Projection& p, std::int64_t experts) {
  const std::int64_t groups = p.cols / kMxBlock;
  job.codes = declare(item, {job.base + "_blocks", DType::u8, {experts, p.rows, groups, kMxBlock / 2}});
  job.scales = declare(item, {job.base + "_scales", DType::u8, {experts, p.rows, groups}});
}

void declare_stacked_plain(ExportItem& item, MatrixJob& job, const Projection& p, const ExpertNames& names,
                           std::int64_t experts) {
  job.quantised = false;
  job.transposed = names.transposed;
  const std::int64_t outer = names.transposed ? p.cols : p.rows;
  const std::int64_t inner = names.transposed ? p.rows : p.cols;
  job.codes = declare(item, {expand(p.pattern, job.layer), DType::bf16, {experts, outer, inner}});
}

ExportItem plan_stacked(const ExpertNames& names, const ExportTarget& target, std::int64_t layer,
                        const LayerSpec& spec) {
  ExportItem item;
  item.layer = layer;
  const std::int64_t experts = spec.routing.experts;
  item.units.resize(static_cast<std::size_t>(experts));
  for (const Projection& p : projections_of(names, spec)) {
    MatrixJob first = job_of(p, names, layer, 0);
    check_columns(target, first.base, p.cols);
    if (target.is_plain()) {
      declare_stacked_plain(item, first, p, names, experts);
    } else {
      declare_stacked_mxfp4(item, first, p, experts);
    }
    const int bias =
        spec.has_bias ? declare(item, {expand(p.bias_pattern, layer), DType::bf16, {experts, p.rows}}) : kNoTensor;
    for (std::int64_t e = 0; e < experts; ++e) {
      MatrixJob job = first;
      job.expert = e;
      job.first_row = e * (job.transposed ? p.cols : p.rows);
      ExportUnit& unit = item.units[static_cast<std::size_t>(e)];
      unit.matrices.push_back(std::move(job));
      if (bias != kNoTensor) unit.biases.push_back({p.part, e, bias, e * p.rows, names.gate_up_order});
    }
  }
  return item;
}

}  // namespace

void declare_module(ExportItem& item, MatrixJob& job, const ExportTarget& target) {
  const ModuleTensors tensors = module_tensors(target, job.base, job.rows, job.cols);
  job.codes = declare(item, tensors.codes);
  job.scales = declare(item, tensors.block_scale);
  job.tensor_scale = declare(item, tensors.tensor_scale);
  job.input_scale = declare(item, tensors.input_scale);
}

std::vector<ExportItem> plan_layer_experts(const NameMap& names, const ExportTarget& target, std::int64_t layer,
                                           const LayerSpec& spec) {
  const ExpertNames& chosen = arrangement(names, target);
  std::vector<ExportItem> items;
  if (chosen.files == ExpertNames::Files::stacked) {
    items.push_back(plan_stacked(chosen, target, layer, spec));
    return items;
  }
  for (std::int64_t e = 0; e < spec.routing.experts; ++e) items.push_back(plan_single(chosen, target, layer, spec, e));
  return items;
}

}  // namespace sluice::ckpt
