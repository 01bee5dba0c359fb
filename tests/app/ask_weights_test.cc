#include "app/ask_weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "app/wiring.h"

namespace sluice::app {
namespace {

// Passes everything on and notes what was asked for.
class Recorder final : public ckpt::WeightSource {
 public:
  explicit Recorder(std::unique_ptr<ckpt::WeightSource> inner) : inner_(std::move(inner)) {}

  bool has(std::string_view role, std::int64_t layer) const override { return inner_->has(role, layer); }
  QuantTensor tensor(std::string_view role, std::int64_t layer, std::int64_t rows, std::int64_t cols) override {
    asked.insert(std::string(role) + " " + std::to_string(layer) + " " + std::to_string(rows) + "x" +
                 std::to_string(cols));
    return inner_->tensor(role, layer, rows, cols);
  }
  ExpertWeights experts(std::int64_t layer, const LayerSpec& spec, const ckpt::ExpertSlice& slice) override {
    asked.insert("experts " + std::to_string(layer) + " " + std::to_string(spec.intermediate));
    return inner_->experts(layer, spec, slice);
  }
  Recipe expert_recipe(std::int64_t layer) const override { return inner_->expert_recipe(layer); }
  Recipe tensor_recipe(std::string_view role, std::int64_t layer) const override {
    return inner_->tensor_recipe(role, layer);
  }
  void release(std::int64_t layer) override { inner_->release(layer); }
  std::uint64_t bytes(std::int64_t layer) const override { return inner_->bytes(layer); }
  std::vector<std::string> unused() const override { return inner_->unused(); }
  std::vector<std::string> notes() const override { return inner_->notes(); }

  std::set<std::string> asked;

 private:
  std::unique_ptr<ckpt::WeightSource> inner_;
};

class AskWeights : public testing::TestWithParam<const char*> {};

// What the report walks over is what loading reads: same roles, layers and sizes, and nothing left over.
TEST_P(AskWeights, AsksForWhatLoadingAsksFor) {
  const std::string path = std::string(SLUICE_SOURCE_DIR) + "/models/" + GetParam();
  LoadOptions options;
  options.threads = 1;
  OpenedModel opened = open_model(path, options, {});
  const std::vector<model::Family> known = families();
  const model::Family& family = model::find_family(known, opened.checkpoint->config());
  const auto record = [&] {
    const std::vector<ckpt::Scheme> list = schemes();
    return Recorder(ckpt::find_scheme(list, *opened.checkpoint).open(*opened.checkpoint, family.names(opened.config)));
  };
  Recorder loaded = record();
  model::load_decoder(opened.config, loaded, decoder_options(opened), {});
  Recorder walked = record();
  ask_for_weights(opened.config, walked);
  EXPECT_GT(walked.asked.size(), 30u);
  EXPECT_EQ(walked.asked, loaded.asked);
  EXPECT_EQ(walked.unused(), loaded.unused());
}

INSTANTIATE_TEST_SUITE_P(BundledModels, AskWeights, testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss"));

}  // namespace
}  // namespace sluice::app
