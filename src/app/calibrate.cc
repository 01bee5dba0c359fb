#include "app/calibrate.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "app/recording_backend.h"
#include "app/sequence_runner.h"
#include "checkpoint/export_plan.h"
#include "core/error.h"
#include "core/file.h"
#include "model/roles.h"
#include "moe/stages.h"

namespace sluice::app {
namespace {

constexpr std::int64_t kChunkTokens = 256;

// Amax of every routed row, for each MoE layer of one forward pass. Router logits come first in each layer.
class AmaxSink : public StageSink {
 public:
  struct Layer {
    std::vector<float> gemm1, gemm2;  // [T * k] by route, 0 = none
    float shared = 0.0f;              // of the intermediate of the shared expert, all tokens
  };

  AmaxSink(std::int64_t tokens, std::vector<std::int32_t> slots) : tokens_(tokens), slots_(std::move(slots)) {}

  void record(std::string_view name, const ConstTensorView& rows, const std::int64_t* route) override {
    if (name == stage::kRouterLogits) {
      const auto routes = static_cast<std::size_t>(tokens_ * slots_.at(layers.size()));
      layers.push_back({std::vector<float>(routes, 0.0f), std::vector<float>(routes, 0.0f), 0.0f});
    }
    if (name == stage::kSharedIntermediate && !layers.empty()) {
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        layers.back().shared = std::max(layers.back().shared, row_amax(rows, r));
      }
    }
    const bool gemm1 = name == stage::kGemm1Input;
    if ((!gemm1 && name != stage::kIntermediate) || layers.empty()) return;
    if (rows.dtype != DType::f32 && rows.dtype != DType::bf16) {
      fail(ErrorCode::unsupported, fmt::format("calibration with inputs of type {}", dtype_name(rows.dtype)),
           "a model whose experts read bf16", "calibrate the unquantised model");
    }
    std::vector<float>& amax = gemm1 ? layers.back().gemm1 : layers.back().gemm2;
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      float& to = amax.at(static_cast<std::size_t>(route != nullptr ? route[r] : r));
      to = std::max(to, row_amax(rows, r));
    }
  }

  std::vector<Layer> layers;

 private:
  std::int64_t tokens_;
  std::vector<std::int32_t> slots_;  // [MoE layers] k
};

// Runs sequences through the decoder and gathers the amax of each expert.
class Calibrator {
 public:
  Calibrator(LoadedModel& model, const ckpt::NameMap& names, bool with_logits)
      : names_(names), runner_(*model.decoder, kChunkTokens, with_logits) {
    const std::vector<model::BlockSpec>& blocks = model.decoder->config().layers;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const LayerSpec* spec = blocks[i].moe();
      if (spec == nullptr) continue;
      moe_layers_.push_back(static_cast<std::int64_t>(i));
      slots_.push_back(spec->routing.slots());
      const auto experts = static_cast<std::size_t>(spec->routing.experts);
      out_.layers[moe_layers_.back()] = {std::vector<float>(experts, 0.0f), std::vector<float>(experts, 0.0f)};
      has_shared_.push_back(blocks[i].shared.has_value());
    }
  }

  void run(const std::vector<std::int32_t>& ids) {
    const auto tokens = static_cast<std::int64_t>(ids.size());
    const std::int64_t stride = tokens * *std::max_element(slots_.begin(), slots_.end());
    std::vector<std::int32_t> routes(static_cast<std::size_t>(stride * std::ssize(moe_layers_)), -1);
    AmaxSink sink(tokens, slots_);
    model::RouteLog log{routes.data(), stride};
    runner_.run(ids, &sink, &log);
    for (std::size_t m = 0; m < moe_layers_.size(); ++m) {
      gather(m, sink.layers.at(m), routes.data() + static_cast<std::int64_t>(m) * stride);
      gather_shared(m, sink.layers[m]);
    }
  }

  // Experts that saw no token get the largest amax of their layer.
  ckpt::Calibration finish(std::int64_t& unseen) {
    for (auto& [layer, experts] : out_.layers) {
      for (std::vector<float>* list : {&experts.gemm1, &experts.gemm2}) {
        const float most = *std::max_element(list->begin(), list->end());
        for (float& amax : *list) {
          if (amax > 0.0f) continue;
          unseen += list == &experts.gemm1 ? 1 : 0;
          amax = most;
        }
      }
    }
    return std::move(out_);
  }

 private:
  // The shared expert reads what the routed ones read, for every token.
  void gather_shared(std::size_t moe_index, const AmaxSink::Layer& seen) {
    if (!has_shared_[moe_index]) return;
    const float input = *std::max_element(seen.gemm1.begin(), seen.gemm1.end());
    raise(model::Role::shared_gate, moe_layers_[moe_index], input);
    raise(model::Role::shared_up, moe_layers_[moe_index], input);
    raise(model::Role::shared_down, moe_layers_[moe_index], seen.shared);
  }

  void raise(model::Role role, std::int64_t layer, float amax) {
    const std::string_view pattern = names_.find(model::role_name(role));
    if (pattern.empty()) return;
    float& to = out_.modules[ckpt::module_of(ckpt::expand(pattern, layer))];
    to = std::max(to, amax);
  }

  void gather(std::size_t moe_index, const AmaxSink::Layer& seen, const std::int32_t* ids) {
    ckpt::Calibration::Experts& experts = out_.layers[moe_layers_[moe_index]];
    for (std::size_t r = 0; r < seen.gemm1.size(); ++r) {
      if (ids[r] < 0 || ids[r] >= std::ssize(experts.gemm1)) continue;
      const auto e = static_cast<std::size_t>(ids[r]);
      experts.gemm1[e] = std::max(experts.gemm1[e], seen.gemm1[r]);
      experts.gemm2[e] = std::max(experts.gemm2[e], seen.gemm2[r]);
    }
  }

  const ckpt::NameMap& names_;
  SequenceRunner runner_;
  std::vector<std::int64_t> moe_layers_;
  std::vector<std::int32_t> slots_;
  std::vector<bool> has_shared_;
  ckpt::Calibration out_;
};

std::string text_of(const Json& line, const std::string& where) {
  if (const Json* text = line.find("text")) return text->as_string(where + ": text");
  const Json* question = line.find("question");
  const Json* answer = line.find("answer");
  if (question == nullptr || answer == nullptr) {
    fail(ErrorCode::bad_input, where + ": no text", "\"text\", or \"question\" and \"answer\"");
  }
  return "Question: " + question->as_string(where + ": question") +
         "\nAnswer: " + answer->as_string(where + ": answer");
}

// By module: the weights of a mapped file are known by their addresses.
void add_recorded(const ckpt::Checkpoint& checkpoint, const RecordingBackend& recorded, ckpt::Calibration& out) {
  for (const ckpt::TensorEntry* tensor : checkpoint.tensors()) {
    const auto at = recorded.amax().find(tensor->data);
    if (at != recorded.amax().end()) out.modules.emplace(ckpt::module_of(tensor->name), at->second);
  }
}

}  // namespace

std::vector<std::string> read_calibration_texts(const std::string& path) {
  std::istringstream file(read_file(path, {.what = "a text file, or JSON lines", .regular = false}));
  std::vector<std::string> texts;
  std::string line, paragraph;
  const bool json = file.peek() == '{';
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (json) {
      const std::string where = fmt::format("{}:{}", path, number);
      if (!line.empty()) texts.push_back(text_of(Json::parse(line, where), where));
    } else if (!line.empty()) {
      paragraph += line + "\n";
    } else if (!paragraph.empty()) {
      texts.push_back(std::exchange(paragraph, ""));
    }
  }
  if (!paragraph.empty()) texts.push_back(paragraph);
  if (texts.empty()) fail(ErrorCode::bad_input, path + ": no texts", "paragraphs of text, or JSON lines");
  return texts;
}

CalibrationReport calibrate(LoadedModel& model, const ckpt::NameMap& names, const std::vector<std::string>& texts,
                            const RecordingBackend* recorded, const ProgressSink& progress) {
  CalibrationReport report;
  Calibrator calibrator(model, names, recorded != nullptr);
  std::uint64_t done = 0;
  for (const std::string& text : texts) {
    if (progress) progress({"calibrating", "texts", done++, texts.size()});
    const std::vector<std::int32_t> ids = model.tokenizer->encode(text, true, false);
    for (std::size_t first = 0; first < ids.size(); first += kChunkTokens) {
      const std::size_t end = std::min<std::size_t>(first + kChunkTokens, ids.size());
      calibrator.run(
          {ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(end)});
      report.tokens += static_cast<std::int64_t>(end - first);
    }
  }
  if (progress) progress({"calibrating", "texts", texts.size(), texts.size()});
  if (report.tokens == 0) fail(ErrorCode::bad_input, "the calibration texts have no tokens", "texts to read");
  report.calibration = calibrator.finish(report.unseen_experts);
  if (recorded != nullptr) add_recorded(*model.opened.checkpoint, *recorded, report.calibration);
  return report;
}

}  // namespace sluice::app
