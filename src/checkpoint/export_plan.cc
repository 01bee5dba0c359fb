#include "checkpoint/export_plan.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <unordered_set>

#include "checkpoint/export_experts.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string_view leaf_of(std::string_view module) { return module.substr(module.rfind('.') + 1); }
std::string_view parent_of(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : module.substr(0, dot);
}

bool is_shared_expert(std::string_view module) {
  const std::string_view leaf = leaf_of(module);
  return module.find(".shared_expert") != std::string_view::npos &&
         (leaf == "gate_proj" || leaf == "up_proj" || leaf == "down_proj" || leaf == "w1" || leaf == "w2" ||
          leaf == "w3");
}

// Readers fuse these and then keep one tensor scale; "" = fused with nothing.
std::string_view fused_with(std::string_view leaf) {
  if (leaf == "gate_proj" || leaf == "up_proj" || leaf == "w1" || leaf == "w3") return "gate_up";
  if (leaf == "q_proj" || leaf == "k_proj" || leaf == "v_proj") return "qkv";
  if (leaf == "q_a_proj" || leaf == "kv_a_proj_with_mqa") return "qkv_a";
  return {};
}

bool is_code_type(DType type) {
  return type == DType::e4m3 || type == DType::e5m2 || type == DType::e2m1 || type == DType::u8 || type == DType::i8 ||
         type == DType::i32;
}

// A linear layer outside the routed experts, as it is stored.
struct Linear {
  std::string module;
  std::string role;  // empty: no role names it
  std::int64_t layer = kOutsideLayers;
  const TensorEntry* entry = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool stored_quantised = false;
  bool fixed = false;  // router or embedding: never quantised
};

class Planner {
 public:
  Planner(const ExportSource& source, const ExportOptions& options) : source_(source), options_(options) {}

  ExportPlan make() {
    find_role_linears();
    find_other_linears();
    choose();
    for (const Linear& linear : linears_) {
      if (linear.stored_quantised) own_module(linear.module);
    }
    plan_copies();
    plan_dense();
    for (std::size_t i = 0; i < source_.layers.size(); ++i) {
      if (source_.layers[i] != nullptr) plan_experts(static_cast<std::int64_t>(i));
    }
    return std::move(plan_);
  }

 private:
  // Every linear layer that the family knows, plain or quantised.
  void find_role_linears() {
    for (std::int64_t layer = kOutsideLayers; layer < std::ssize(source_.layers); ++layer) {
      for (const auto& [role, pattern] : source_.names->tensors) {
        const bool in_layer = pattern.find("{L}") != std::string::npos;
        if (in_layer != (layer != kOutsideLayers) || !ends_with(pattern, kWeight)) continue;
        add_linear(module_of(expand(pattern, layer)), role, layer);
      }
    }
  }

  void add_linear(const std::string& module, const std::string& role, std::int64_t layer) {
    Linear linear{module, role, layer};
    const TensorEntry* plain = source_.checkpoint->find(module + std::string(kWeight));
    const TensorEntry* packed = source_.checkpoint->find(module + ".weight_packed");
    linear.entry = plain != nullptr ? plain : packed;
    if (linear.entry == nullptr || linear.entry->shape.size() != 2 || linear.entry->shape[0] < 1) return;
    linear.stored_quantised = is_code_type(linear.entry->dtype);
    linear.rows = linear.entry->shape[0];
    linear.cols = linear.entry->shape[1] * (linear.entry->dtype == DType::u8 ? 2 : 1);
    linear.fixed = role == "router" || role == "embedding";
    if (known_.insert(module).second) linears_.push_back(std::move(linear));
  }

  // Plain linear layers of parts that the engine has no use for, such as a layer that predicts further tokens.
  void find_other_linears() {
    for (const TensorEntry* tensor : source_.checkpoint->tensors()) {
      if (tensor->shape.size() != 2 || !ends_with(tensor->name, kWeight) || is_code_type(tensor->dtype)) continue;
      const std::string module = module_of(tensor->name);
      if (belongs_to_experts(tensor->name) || !known_.insert(module).second) continue;
      linears_.push_back({module, "", kOutsideLayers, tensor, tensor->shape[0], tensor->shape[1], false, false});
    }
  }

  bool included(const Linear& linear) {
    bool found = false;
    for (std::size_t i = 0; i < options_.include.size(); ++i) {
      if (fnmatch(options_.include[i].c_str(), linear.module.c_str(), 0) != 0) continue;
      found = true;
      include_used_.insert(i);
    }
    if (found && linear.fixed) {
      fail(ErrorCode::unsupported, fmt::format("--include: {} is {}", linear.module, linear.role),
           "linear layers other than routers and embeddings", "no reader takes these quantised");
    }
    return found;
  }

  void choose() {
    for (const Linear& linear : linears_) {
      const bool shared = !linear.role.empty() && is_shared_expert(linear.module);
      if ((included(linear) || shared) && !options_.target.is_plain()) chosen_.insert(linear.module);
    }
    for (std::size_t i = 0; i < options_.include.size(); ++i) {
      if (include_used_.count(i) != 0) continue;
      fail(ErrorCode::usage, fmt::format("--include {}: no module has such a name", quote(options_.include[i])),
           linears_.empty() ? "" : fmt::format("names like {}", linears_.back().module));
    }
  }

  // The scales of a module go with it; its bias is copied.
  void own_module(const std::string& module) { owned_.insert(module); }

  std::string experts_prefix(const std::string& pattern, std::int64_t layer) const {
    const std::size_t expert = pattern.find("{E}");
    return expand(pattern.substr(0, expert == std::string::npos ? pattern.rfind('.') + 1 : expert), layer);
  }

  bool belongs_to_experts(const std::string& name) {
    if (prefixes_.empty()) {
      for (std::size_t i = 0; i < source_.layers.size(); ++i) {
        if (source_.layers[i] == nullptr) continue;
        for (const ExpertNames& names : source_.names->experts) {
          prefixes_.insert(experts_prefix(names.down, static_cast<std::int64_t>(i)));
        }
      }
    }
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (prefixes_.count(name.substr(0, dot + 1)) != 0) return true;
    }
    return false;
  }

  bool is_replaced(const TensorEntry& tensor) {
    if (belongs_to_experts(tensor.name)) return true;
    const std::string module(parent_of(tensor.name));
    if (chosen_.count(module) != 0) return !ends_with(tensor.name, kBias);
    return owned_.count(module) != 0 && !ends_with(tensor.name, kBias);
  }

  // Quantised tensors that no role names cannot keep their scales beside a new description.
  bool is_foreign_code(const TensorEntry& tensor, const std::unordered_set<std::string>& foreign) const {
    return foreign.count(std::string(parent_of(tensor.name))) != 0 && !ends_with(tensor.name, kBias);
  }

  std::unordered_set<std::string> foreign_modules() {
    std::unordered_set<std::string> modules;
    for (const TensorEntry* tensor : source_.checkpoint->tensors()) {
      if (is_replaced(*tensor) || !is_code_type(tensor->dtype)) continue;
      if (tensor->name.find("weight") == std::string::npos) continue;
      modules.insert(std::string(parent_of(tensor->name)));
    }
    return modules;
  }

  void plan_copies() {
    const std::unordered_set<std::string> foreign = foreign_modules();
    std::vector<std::string> dropped;
    for (const TensorEntry* tensor : source_.checkpoint->tensors()) {
      if (is_replaced(*tensor)) continue;
      if (is_foreign_code(*tensor, foreign)) {
        dropped.push_back(tensor->name);
        continue;
      }
      ExportItem item;
      item.tensors.push_back({tensor->name, tensor->dtype, tensor->shape});
      item.units.emplace_back().copy = tensor;
      plan_.items.push_back(std::move(item));
      if (tensor->shape.size() == 2 && ends_with(tensor->name, kWeight)) exclude(module_of(tensor->name));
    }
    if (!dropped.empty()) {
      plan_.notes.push_back(fmt::format("{} quantised tensors that the engine does not read are left out: {}",
                                        dropped.size(), first_few(dropped)));
    }
  }

  void exclude(const std::string& module) {
    const auto linear =
        std::find_if(linears_.begin(), linears_.end(), [&](const Linear& l) { return l.module == module; });
    const bool embedding = linear != linears_.end() && linear->role == "embedding";
    if (!embedding) plan_.excluded.push_back(module);
  }

  // Linear layers that are quantised, or were and go back to bf16.
  void plan_dense() {
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      const Linear& linear = linears_[i];
      const bool chosen = chosen_.count(linear.module) != 0;
      if (!chosen && !linear.stored_quantised) continue;
      if (!planned_.insert(linear.module).second) continue;
      ExportItem item;
      item.layer = linear.layer;
      ExportUnit& unit = item.units.emplace_back();
      add_dense(item, unit, linear, chosen);
      const std::string_view tag = fused_with(leaf_of(linear.module));
      for (std::size_t j = i + 1; j < linears_.size() && chosen && !tag.empty(); ++j) {
        const Linear& other = linears_[j];
        if (chosen_.count(other.module) == 0 || fused_with(leaf_of(other.module)) != tag) continue;
        if (parent_of(other.module) != parent_of(linear.module) || !planned_.insert(other.module).second) continue;
        add_dense(item, unit, other, true);
      }
      plan_.items.push_back(std::move(item));
    }
  }

  void add_dense(ExportItem& item, ExportUnit& unit, const Linear& linear, bool quantised) {
    MatrixJob job;
    job.base = linear.module;
    job.layer = linear.layer;
    job.role = linear.role;
    job.entry = linear.role.empty() ? linear.entry : nullptr;
    job.rows = linear.rows;
    job.cols = linear.cols;
    job.quantised = quantised;
    if (quantised) check_columns(options_.target, linear.module, linear.cols);
    declare_module(item, job, quantised ? options_.target : ExportTarget{});
    unit.matrices.push_back(std::move(job));
    if (!quantised) return plan_.excluded.push_back(linear.module);
    plan_.quantised.push_back(linear.module);
    ++plan_.quantised_count;
  }

  void plan_experts(std::int64_t layer) {
    const LayerSpec& spec = *source_.layers[static_cast<std::size_t>(layer)];
    std::vector<ExportItem> items = plan_layer_experts(*source_.names, options_.target, layer, spec);
    for (ExportItem& item : items) plan_.items.push_back(std::move(item));
    if (!options_.target.is_plain()) {
      plan_.quantised_count += spec.routing.experts * (is_gated(spec.activation.kind) ? 3 : 2);
    }
  }

  const ExportSource& source_;
  const ExportOptions& options_;
  ExportPlan plan_;
  std::vector<Linear> linears_;
  std::unordered_set<std::string> known_, chosen_, owned_, planned_, prefixes_;
  std::unordered_set<std::size_t> include_used_;
};

}  // namespace

std::string module_of(std::string_view tensor_name) {
  if (ends_with(tensor_name, kWeight)) tensor_name.remove_suffix(kWeight.size());
  return std::string(tensor_name);
}

ExportPlan make_plan(const ExportSource& source, const ExportOptions& options) {
  return Planner(source, options).make();
}

}  // namespace sluice::ckpt
