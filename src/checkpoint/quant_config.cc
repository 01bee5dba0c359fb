#include "checkpoint/quant_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr std::string_view kSidecarName = "hf_quant_config.json";
constexpr std::string_view kMethods = "modelopt, compressed-tensors, fp8 or mxfp4";

struct Algorithm {
  std::string_view name;
  BlockFormat format;
  InputScaling inputs;
};

// quant_algo of ModelOpt.
constexpr Algorithm kAlgorithms[] = {
    {"FP8", BlockFormat::fp8_tensor, InputScaling::unknown},
    {"FP8_PER_CHANNEL_PER_TOKEN", BlockFormat::fp8_row, InputScaling::dynamic},
    {"FP8_PB_WO", BlockFormat::fp8_block, InputScaling::dynamic},
    {"NVFP4", BlockFormat::nvfp4, InputScaling::unknown},
    {"NVFP4_AWQ", BlockFormat::nvfp4, InputScaling::unknown},
    {"W4A16_NVFP4", BlockFormat::nvfp4, InputScaling::none},
    {"MXFP4", BlockFormat::mxfp4, InputScaling::unknown},
    {"W4A8_MXFP4_FP8", BlockFormat::mxfp4, InputScaling::dynamic},
};
constexpr std::string_view kMixed = "MIXED_PRECISION";

const Algorithm& algorithm_named(const std::string& name, const std::string& where) {
  const auto* at =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const Algorithm& a) { return a.name == name; });
  if (at != std::end(kAlgorithms)) return *at;
  std::string known;
  for (const Algorithm& a : kAlgorithms) known += std::string(a.name) + ", ";
  fail(ErrorCode::unsupported, fmt::format("{}: found {}", where, quote(name)), known + std::string(kMixed));
}

QuantMethod method_named(const std::string& name, const std::string& where) {
  constexpr std::pair<std::string_view, QuantMethod> kNames[] = {
      {"modelopt", QuantMethod::modelopt},
      {"modelopt_fp4", QuantMethod::modelopt},
      {"modelopt_fp8", QuantMethod::modelopt},
      {"modelopt_mixed", QuantMethod::modelopt},
      {"fp8", QuantMethod::fp8},
      {"compressed-tensors", QuantMethod::compressed_tensors},
      {"mxfp4", QuantMethod::mxfp4},
      {"compressed_tensors", QuantMethod::compressed_tensors},
      {"gpt_oss_mxfp4", QuantMethod::mxfp4},
  };
  for (const auto& [known, method] : kNames) {
    if (known == name) return method;
  }
  fail(ErrorCode::unsupported, fmt::format("{}: found {}", where, quote(name)), std::string(kMethods),
       "requantise the model to one of them");
}

// A blank text is what some exporters write for "none".
std::string filled(const Fields& f, Keys keys) { return f.get_string(keys, ""); }

bool has_input_scale(const Fields& f) { return f.get_bool({"with_input_scale"}, true); }

InputScaling inputs_of(const Fields& group) {
  if (!has_input_scale(group)) return InputScaling::none;
  const std::optional<Fields> inputs = group.maybe_object({"input_activations"});
  if (!inputs) return InputScaling::none;
  const Json* dynamic = inputs->find({"dynamic"});
  // "local": the block scales are found at run time, the tensor scale is in the file.
  return dynamic != nullptr && dynamic->is_bool() && dynamic->as_bool("dynamic") ? InputScaling::dynamic
                                                                                 : InputScaling::fixed;
}

[[noreturn]] void fail_group(const Fields& weights, const std::string& found) {
  fail(ErrorCode::unsupported, fmt::format("{}: found {}", weights.origin(), found),
       "4-bit floats in groups of 16 or 32, or 8-bit floats with a scale a tensor, a channel or a block");
}

// Format and block of `weights` of a config group; ModelOpt leaves the strategy of FP8 to quant_algo.
void read_weights(const Fields& weights, QuantRule& rule) {
  const std::int64_t bits = weights.get_int({"num_bits"}, {1, 64});
  const std::string type = weights.get_string({"type"}, "float");
  const std::string strategy = weights.get_string({"strategy"}, "");
  const std::int64_t group = weights.get_int({"group_size"}, {-1, kDimRange.max}, 0);
  if (type != "float") fail_group(weights, fmt::format("num_bits {}, type {}", bits, quote(type)));
  if (bits == 4) {
    if (group != 16 && group != 32) fail_group(weights, fmt::format("num_bits 4, group_size {}", group));
    rule.format = group == 16 ? BlockFormat::nvfp4 : BlockFormat::mxfp4;
    rule.block_rows = 1;
    rule.block_cols = group;
  } else if (bits == 8 && strategy == "tensor") {
    rule.format = BlockFormat::fp8_tensor;
  } else if (bits == 8 && strategy == "channel") {
    rule.format = BlockFormat::fp8_row;
  } else if (bits == 8 && strategy == "block") {
    rule.format = BlockFormat::fp8_block;
    const std::vector<std::int64_t> block = weights.get_ints({"block_structure"}, kDimRange);
    if (block.size() == 2) rule.block_rows = block[0], rule.block_cols = block[1];
  } else if (bits != 8 || !strategy.empty()) {
    fail_group(weights, fmt::format("num_bits {}, strategy {}", bits, quote(strategy)));
  }
}

void read_targets(const Fields& group, QuantRule& rule) {
  const std::vector<std::string> targets = group.get_strings({"targets"});
  rule.everything = targets.empty();
  for (const std::string& target : targets) {
    // Classes of modules have no dots and begin with a capital letter: "Linear", "FusedMoE".
    const bool is_class = !target.empty() && target[0] >= 'A' && target[0] <= 'Z';
    rule.everything |= is_class;
    if (!is_class) rule.targets.add(target, group.origin() + ".targets");
  }
}

std::string scheme_text(const Json& scheme) { return scheme.is_string() ? scheme.as_string("") : "FP8"; }

}  // namespace

std::string_view quant_method_name(QuantMethod method) {
  constexpr std::string_view kNames[] = {"none", "modelopt", "compressed-tensors", "fp8", "mxfp4"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(QuantMethod::mxfp4) + 1);
  return kNames[static_cast<std::size_t>(method)];
}

// Fills a QuantConfig from the two objects, config.json's first.
class QuantConfigReader {
 public:
  QuantConfigReader(std::vector<Fields> sources, const std::optional<Fields>& main) : sources_(std::move(sources)) {
    out_.method_ = find_method(main);
  }

  QuantConfig read() {
    std::string where;
    for (const Fields& f : sources_) {
      where += (where.empty() ? "" : " and ") + f.origin();
      for (const std::string_view key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"}) {
        std::string list;
        f.find({key}, &list);
        for (const std::string& name : f.get_strings({key})) out_.excluded_.add(name, list);
      }
      for (const std::string_view key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
        const Json* kv = f.find({key});
        if (kv != nullptr && out_.kv_cache_.empty()) out_.kv_cache_ = scheme_text(*kv);
      }
    }
    out_.description_ = fmt::format("{} ({})", quant_method_name(out_.method_), where);
    if (out_.method_ == QuantMethod::modelopt) read_modelopt();
    if (out_.method_ == QuantMethod::compressed_tensors) read_groups();
    if (out_.method_ == QuantMethod::fp8) read_fp8();
    if (out_.method_ == QuantMethod::mxfp4) add_rule(BlockFormat::mxfp4, InputScaling::unknown, sources_[0].origin());
    return std::move(out_);
  }

 private:
  static QuantMethod find_method(const std::optional<Fields>& main) {
    if (!main) return QuantMethod::modelopt;  // hf_quant_config.json is ModelOpt's file
    std::string where;
    const std::string method = filled(*main, {"quant_method"});
    if (!method.empty()) {
      main->find({"quant_method"}, &where);
      return method_named(method, where);
    }
    const bool groups = main->has({"config_groups"}) && main->has({"format"});
    return groups ? QuantMethod::compressed_tensors : QuantMethod::modelopt;
  }

  // The first that is not blank. Both speaking, and differently, is an error unless the outer method is another one.
  std::string algorithm(std::string* where) {
    std::string found;
    for (const Fields& f : sources_) {
      std::string here;
      const std::string name = filled(f, {"quant_algo"});
      f.find({"quant_algo"}, &here);
      if (name.empty()) continue;
      if (found.empty()) {
        found = name;
        *where = here;
      } else if (found != name) {
        fail(ErrorCode::bad_input, fmt::format("{}: found {} but {} is {}", here, quote(name), *where, quote(found)),
             "one value", "remove the file that does not belong to these weights");
      }
    }
    return found;
  }

  QuantRule& add_rule(std::optional<BlockFormat> format, InputScaling inputs, std::string where) {
    QuantRule rule;
    rule.everything = true;
    rule.format = format;
    rule.inputs = inputs;
    rule.where = std::move(where);
    out_.rules_.push_back(std::move(rule));
    return out_.rules_.back();
  }

  void read_modelopt() {
    std::string where;
    const std::string name = algorithm(&where);
    if (name == kMixed) return read_listed();
    const bool groups = read_groups();
    if (name.empty()) return;
    const Algorithm& algo = algorithm_named(name, where);
    if (!groups) add_rule(algo.format, algo.inputs, fmt::format("{}: {}", where, name));
    for (QuantRule& rule : out_.rules_) {
      if (!rule.format) rule.format = algo.format;
      if (algo.inputs == InputScaling::none) rule.inputs = InputScaling::none;
      if (*rule.format == BlockFormat::fp8_row) rule.inputs = InputScaling::dynamic;
    }
    for (const Fields& f : sources_) {
      if (has_input_scale(f)) continue;
      for (QuantRule& rule : out_.rules_) rule.inputs = InputScaling::none;
    }
    check_group_size();
  }

  void check_group_size() {
    for (const Fields& f : sources_) {
      const std::int64_t group = f.get_int({"group_size"}, {0, kDimRange.max}, 0);
      for (QuantRule& rule : out_.rules_) {
        if (group == 0 || !rule.format || block_format_info(*rule.format).element != DType::e2m1) continue;
        rule.block_rows = 1;
        rule.block_cols = group;
      }
    }
  }

  // quantized_layers: a rule for each listed module, those with the same content sharing one.
  void read_listed() {
    std::map<std::string, std::size_t> known;
    for (const Fields& f : sources_) {
      std::string where;
      const Json* layers = f.find({"quantized_layers"}, &where);
      if (layers == nullptr) continue;
      for (const auto& [module, entry] : layers->as_object(where)) {
        const auto [at, is_new] = known.emplace(entry.dump(), out_.rules_.size());
        if (is_new) {
          const Fields fields(entry, fmt::format("{}.{}", where, printable(module)));
          const std::string name = fields.get_string({"quant_algo"});
          const std::string place = fields.origin() + ".quant_algo";
          const Algorithm& algo = algorithm_named(name, place);
          add_rule(algo.format, algo.inputs, fmt::format("{}: {}", fields.origin(), name)).everything = false;
        }
        out_.listed_.emplace(module, at->second);
      }
    }
    if (!out_.listed_.empty()) return;
    if (!read_groups()) {
      fail(ErrorCode::bad_input, sources_[0].origin() + ": quant_algo MIXED_PRECISION",
           "quantized_layers or config_groups that say what each module is");
    }
  }

  // config_groups; false when there are none.
  bool read_groups() {
    for (const Fields& f : sources_) {
      const std::optional<Fields> groups = f.maybe_object({"config_groups"});
      if (!groups) continue;
      const Json* object = f.find({"config_groups"});
      for (const auto& [name, group] : object->as_object(groups->origin())) {
        read_group(Fields(group, groups->origin() + "." + printable(name)));
      }
      return !out_.rules_.empty();
    }
    return false;
  }

  void read_group(const Fields& group) {
    const std::optional<Fields> weights = group.maybe_object({"weights"});
    if (!weights) return;
    QuantRule rule;
    rule.where = group.origin();
    read_targets(group, rule);
    rule.inputs = inputs_of(group);
    read_weights(*weights, rule);
    out_.rules_.push_back(std::move(rule));
  }

  // With moe_quant_algo the experts have a format of their own, and hf_quant_config.json speaks of them.
  void read_fp8() {
    for (const Fields& f : sources_) {
      std::string where;
      const std::string name = filled(f, {"moe_quant_algo"});
      f.find({"moe_quant_algo"}, &where);
      if (name.empty()) continue;
      const Algorithm& algo = algorithm_named(name, where);
      QuantRule& experts = add_rule(algo.format, algo.inputs, fmt::format("{}: {}", where, name));
      experts.everything = false;
      experts.targets.add("experts", where);
      break;
    }
    const Fields& f = sources_[0];
    const std::string type = f.get_string({"fmt"}, "e4m3");
    if (type != "e4m3" && type != "float8_e4m3fn") {
      fail(ErrorCode::unsupported, fmt::format("{}: fmt: found {}", f.origin(), quote(type)), "e4m3");
    }
    const bool fixed = f.get_string({"activation_scheme"}, "dynamic") == "static";
    QuantRule& rule = add_rule(std::nullopt, fixed ? InputScaling::fixed : InputScaling::dynamic, f.origin() + ": fp8");
    const std::vector<std::int64_t> block = f.get_ints({"weight_block_size"}, kDimRange);
    if (block.size() != 2) return;
    rule.format = BlockFormat::fp8_block;
    rule.block_rows = block[0];
    rule.block_cols = block[1];
  }

  std::vector<Fields> sources_;
  QuantConfig out_;
};

QuantConfig QuantConfig::from(const std::optional<Fields>& main, const std::optional<Fields>& sidecar) {
  std::vector<Fields> sources;
  for (const std::optional<Fields>& f : {main, sidecar}) {
    // ModelOpt nests its fields once more in its own file.
    if (f) sources.push_back(f->has({"quantization"}) ? f->get_object({"quantization"}) : *f);
  }
  if (sources.empty()) return {};
  return QuantConfigReader(std::move(sources), main).read();
}

QuantConfig QuantConfig::read(const Checkpoint& checkpoint) {
  const std::string path = join_path(checkpoint.folder(), kSidecarName);
  std::optional<Fields> sidecar;
  if (file_exists(path)) sidecar = Fields(parse_config_file(path), path);
  return from(checkpoint.config().quantization(), sidecar);
}

bool QuantConfig::excludes(std::string_view module) const {
  return excluded_.contains(module) || excluded_.contains_child_of(module);
}

const QuantRule* QuantConfig::rule_for(std::string_view module) const {
  return excludes(module) ? nullptr : rule_of_included(module);
}

const QuantRule* QuantConfig::rule_of_included(std::string_view module) const {
  // A listed module stands for what lies in it.
  for (std::string_view name = module; !listed_.empty();) {
    const auto at = listed_.find(std::string(name));
    if (at != listed_.end()) return &rules_[at->second];
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) break;
    name = name.substr(0, dot);
  }
  for (const QuantRule& rule : rules_) {
    if (rule.everything || rule.targets.contains(module)) return &rule;
  }
  return nullptr;
}

bool QuantConfig::weight_only() const {
  return !rules_.empty() && std::all_of(rules_.begin(), rules_.end(),
                                        [](const QuantRule& rule) { return rule.inputs == InputScaling::none; });
}

}  // namespace sluice::ckpt
