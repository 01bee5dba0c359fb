#include "checkpoint/source.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/expert_reader.h"
#include "checkpoint/messages.h"
#include "checkpoint/scheme_compressed_tensors.h"
#include "checkpoint/scheme_fp8.h"
#include "checkpoint/scheme_modelopt.h"
#include "checkpoint/scheme_mxfp4.h"
#include "checkpoint/scheme_plain.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr std::string_view kExperts = "experts";

std::string note_text(const Finding& finding) {
  if (finding.count == 1) return fmt::format("{}: {}", quote(finding.tensor), finding.message);
  return fmt::format("{} ({} weights: {}{})", finding.message, finding.count, first_few(finding.tensors),
                     finding.count > static_cast<std::int64_t>(finding.tensors.size()) ? ", ..." : "");
}

class Source final : public WeightSource {
 public:
  Source(const Checkpoint& checkpoint, NameMap names, const SchemeOptions& options)
      : options_(options),
        config_(QuantConfig::read(checkpoint)),
        tensors_(checkpoint, std::move(names), options.read_ahead, options.pool),
        weights_(tensors_, config_, options_) {}

  bool has(std::string_view role, std::int64_t layer) const override { return tensors_.find(role, layer) != nullptr; }

  QuantTensor tensor(std::string_view role, std::int64_t layer, std::int64_t rows, std::int64_t cols) override {
    QuantTensor out;
    out.codes = {nullptr, DType::bf16, rows, cols, cols, 1};
    guarded([&] { out = read_tensor(role, layer, rows, cols); });
    return out;
  }

  ExpertWeights experts(std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice) override {
    ExpertWeights out;
    guarded([&] { out = read_experts(layer, spec, slice, false); });
    return out;
  }

  ExpertWeights experts_to_check(std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice) override {
    ExpertWeights out;
    guarded([&] { out = read_experts(layer, spec, slice, true); });
    return out;
  }

  void finish_checks() override { weights_.finish_left_checks(); }

  Recipe expert_recipe(std::int64_t layer) const override {
    const ExpertNames& names = tensors_.expert_names(layer);
    const bool together = names.gate_up_order != ExpertNames::GateUp::separate;
    const auto found = tensors_.find_all({expand(together ? names.gate_up : names.up, layer)});
    return found[0] == nullptr ? Recipe::bf16 : recipe_of(weights_.format_of(*found[0]));
  }

  Recipe tensor_recipe(std::string_view role, std::int64_t layer) const override {
    const ModuleParts* parts = tensors_.find(role, layer);
    return parts == nullptr ? Recipe::bf16 : recipe_of(weights_.format_of(*parts));
  }

  void expect_experts(std::int64_t layer, const ExpertSlice& slice) override { tensors_.expect_experts(layer, slice); }
  void release(std::int64_t layer) override { tensors_.release(layer); }
  std::uint64_t bytes(std::int64_t layer) const override { return tensors_.bytes(layer); }
  std::vector<std::string> unused() const override { return tensors_.unused(); }

  std::vector<std::string> notes() const override {
    std::vector<std::string> out = tensors_.notes();
    if (!kv_text().empty()) out.push_back(kv_text());
    for (const Finding& finding : weights_.oddities().all()) {
      if (finding.severity != Severity::info) out.push_back(note_text(finding));
    }
    return out;
  }

  std::vector<Finding> oddities() const override {
    std::vector<Finding> out = weights_.oddities().all();
    for (const std::string& note : tensors_.notes())
      out.push_back({Severity::info, FindingKind::other, note, "", "", 1, {}});
    if (!kv_text().empty()) out.push_back({Severity::warning, FindingKind::scale, kv_text(), "", "", 1, {}});
    return out;
  }

  std::vector<FormatUse> formats() const override {
    std::vector<FormatUse> out;
    for (const auto& [key, use] : uses_) out.push_back(use);
    return out;
  }

 private:
  QuantTensor read_tensor(std::string_view role, std::int64_t layer, std::int64_t rows, std::int64_t cols) {
    WeightRequest request;
    request.parts = &tensors_.require(role, layer);
    request.layer = layer;
    request.outputs = rows;
    request.inputs = cols;
    weights_.forget_checks();
    const StoredWeight stored = weights_.read(request);
    weights_.finish_checks();
    tally(role, layer, *request.parts, stored);
    QuantTensor out = cut(stored, request, 0, {0, 1, rows, 0, {0, cols}});
    out.release = &release_;
    if (stored.input_scale.empty()) return out;
    std::vector<float> scale = {stored.input_scale.at(request, 0, 0)};
    weights_.complete_input_scales(layer, request.parts->codes()->name, scale);
    out.input_scale = scale[0];
    return out;
  }

  ExpertWeights read_experts(std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice, bool leave_checks) {
    if (spec.routing.fused_shared != 0) {
      fail(ErrorCode::unsupported, fmt::format("layer {}: shared experts fused with routed ones", layer),
           "shared experts as a dense layer of their own");
    }
    if (spec.routing.experts < 1) fail(ErrorCode::usage, fmt::format("layer {} has no experts", layer), "at least one");
    const auto count = [&](const ModuleParts& parts, const StoredWeight& stored) {
      tally(kExperts, layer, parts, stored);
    };
    weights_.forget_checks();
    return ExpertReader(weights_, layer, spec, slice, count).read(leave_checks);
  }

  // Remembered for the next weight, which mostly is like the last one.
  FormatUse& use_of(std::string_view role, std::optional<BlockFormat> stored, DType dtype, std::int64_t layer) {
    std::string format = format_text(stored, dtype);
    FormatUse& use = uses_[{std::string(role), format}];
    if (use.weights == 0) use = {std::string(role), std::move(format), 0, 0, layer, layer};
    last_use_ = &use;
    last_format_ = stored;
    last_dtype_ = dtype;
    return use;
  }

  void tally(std::string_view role, std::int64_t layer, const ModuleParts& parts, const StoredWeight& stored) {
    const DType dtype = parts.codes()->dtype;
    const bool again =
        last_use_ != nullptr && last_use_->role == role && last_format_ == stored.format && last_dtype_ == dtype;
    FormatUse& use = again ? *last_use_ : use_of(role, stored.format, dtype, layer);
    ++use.weights;
    use.bytes += TensorReader::bytes_of(parts);
    use.first_layer = std::min(use.first_layer, layer);
    use.last_layer = std::max(use.last_layer, layer);
  }

  template <class F>
  void guarded(F read) {
    if (options_.findings == nullptr) return read();
    try {
      read();
    } catch (const Error& error) {
      options_.findings->add(error);
    }
  }

  std::string kv_text() const {
    const std::size_t scales = tensors_.kv_scales();
    if (scales == 0 && config_.kv_cache().empty()) return "";
    return fmt::format(
        "the KV cache is calibrated for {} ({} scales in the file); it is bf16 here, and they have no use",
        config_.kv_cache().empty() ? "another type" : config_.kv_cache(), scales);
  }

  const SchemeOptions options_;
  const QuantConfig config_;
  TensorReader tensors_;
  const PageRelease release_ = tensors_.page_release();
  WeightReader weights_;
  std::map<std::pair<std::string, std::string>, FormatUse> uses_;
  FormatUse* last_use_ = nullptr;
  std::optional<BlockFormat> last_format_;
  DType last_dtype_ = DType::f32;
};

}  // namespace

const std::vector<const Dialect*>& dialects() {
  static const std::vector<const Dialect*> kDialects = {&plain_dialect(), &fp8_dialect(), &modelopt_dialect(),
                                                        &compressed_tensors_dialect(), &mxfp4_dialect()};
  return kDialects;
}

std::unique_ptr<WeightSource> open_source(const Checkpoint& checkpoint, NameMap names, const SchemeOptions& options) {
  return std::make_unique<Source>(checkpoint, std::move(names), options);
}

std::string refusal_of(const Checkpoint& checkpoint, QuantMethod method, const Dialect& dialect) {
  const std::vector<const TensorEntry*>& tensors = checkpoint.tensors();
  if (std::none_of(tensors.begin(), tensors.end(), [](const TensorEntry* t) { return is_quantised(*t); })) {
    return "nothing is quantised";
  }
  const QuantConfig config = QuantConfig::read(checkpoint);
  if (config.method() == method) return "";
  if (config.method() != QuantMethod::none) return "the checkpoint is described as " + config.description();
  const ModuleIndex modules(checkpoint);
  for (const TensorEntry* tensor : tensors) {
    if (is_quantised(*tensor) && dialect.claims(*modules.find(tensor->name))) return "";
  }
  return "no weight is named as it names them, and config.json says nothing";
}

bool is_quantised(const TensorEntry& tensor) {
  switch (tensor.dtype) {
    case DType::e4m3:
    case DType::e5m2:
    case DType::e8m0:
    case DType::e2m1:
      return true;
    case DType::u8:
    case DType::i8:
    case DType::i32:
      return tensor.name.find("weight") != std::string::npos || tensor.name.find("blocks") != std::string::npos;
    default:
      return false;
  }
}

}  // namespace sluice::ckpt
