// Opening and loading by name: what is chosen, what is refused and in which words, what the start line is told.
#include "app/wiring.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "app/read_limit.h"
#include "app/version.h"
#include "core/error.h"
#include "model/test_decoder.h"
#include "model/toy_model.h"

namespace sluice::app {
namespace {

const std::string kModel = testing::bundled_model("qwen3_moe");

Error refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode::check_failed, ""};
}

void expect_refused(const std::function<void(LoadOptions&)>& change, ErrorCode code, const std::string& part) {
  LoadOptions options;
  options.threads = 1;
  change(options);
  const Error e = refusal([&] { open_model(kModel, options, {}); });
  EXPECT_EQ(e.code(), code) << e.what();
  EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
}

TEST(OpenModel, ChoosesTheFirstRunnerThatCan) {
  const OpenedModel m = open_model(kModel, {}, {});
  EXPECT_EQ(m.recipe, Recipe::bf16);
  EXPECT_EQ(m.compute, DType::bf16);
  ASSERT_EQ(m.selections.size(), 4u);
  for (const Selection& s : m.selections) {
    ASSERT_NE(s.chosen, nullptr);
    EXPECT_EQ(s.chosen->name(), "cpu");
    ASSERT_EQ(s.table.size(), 3u);
    EXPECT_EQ(s.table[0].runner->name(), "hopper");
    EXPECT_FALSE(s.table[0].verdict.ok);
  }
}

TEST(OpenModel, Float32RunsOnTheReference) {
  LoadOptions options;
  options.dtype = "float32";
  const OpenedModel m = open_model(kModel, options, {});
  EXPECT_EQ(m.recipe, Recipe::f32);
  EXPECT_EQ(m.compute, DType::f32);
  EXPECT_EQ(m.selections[0].chosen->name(), "reference");
  EXPECT_FALSE(m.selections[0].table[0].verdict.ok);
  EXPECT_FALSE(m.selections[0].table[0].verdict.reason.empty());
}

TEST(OpenModel, DenseLayersHaveNoRunner) {
  const testing::ToyModel toy;
  const OpenedModel m = open_model(toy.folder(), {}, {});
  EXPECT_NE(m.selections[0].chosen, nullptr);
  EXPECT_EQ(m.selections[1].chosen, nullptr);
  EXPECT_NE(m.selections[2].chosen, nullptr);
}

TEST(OpenModel, RefusesUnknownNames) {
  expect_refused([](LoadOptions& o) { o.dtype = "float64"; }, ErrorCode::usage, "auto, bfloat16 or float32");
  expect_refused([](LoadOptions& o) { o.isa = "neon"; }, ErrorCode::usage, "instruction set neon");
  expect_refused([](LoadOptions& o) { o.device = "tpu"; }, ErrorCode::usage, "device tpu");
  expect_refused([](LoadOptions& o) { o.device = "cuda:x"; }, ErrorCode::usage, "device cuda:x");
  expect_refused([](LoadOptions& o) { o.device = "cud"; }, ErrorCode::usage, "device cud");
  expect_refused([](LoadOptions& o) { o.moe_runner_backend = "nonsense"; }, ErrorCode::usage, "nonsense");
}

TEST(OpenModel, RefusesWhatCannotBeDone) {
  expect_refused(
      [](LoadOptions& o) {
        o.dtype = "float32";
        o.moe_runner_backend = "cpu";
      },
      ErrorCode::unsupported, "cpu");
  expect_refused([](LoadOptions& o) { o.engine.context_length = 4097; }, ErrorCode::usage, "at most 4096");
}

TEST(OpenModel, SglangsNamesAreCheckedBeforeAnyWeightIsRead) {
  expect_refused([](LoadOptions& o) { o.moe_runner_backend = "flashinfer_cutedsl"; }, ErrorCode::unsupported,
                 "flashinfer_trtllm");
  expect_refused([](LoadOptions& o) { o.quantization = "modelopt_fp4"; }, ErrorCode::unsupported, "no --quantization");
  expect_refused([](LoadOptions& o) { o.recipe = "nvfp4-w4a16"; }, ErrorCode::unsupported, "auto, f32, bf16");
  expect_refused([](LoadOptions& o) { o.moe_runner_backend = "reference/cutedsl"; }, ErrorCode::unsupported,
                 "takes NVFP4");
  LoadOptions options;
  options.moe_runner_backend = "flashinfer_trtllm";
  options.notes = {"a line"};
  std::vector<std::string> lines;
  const OpenedModel m = open_model(kModel, options, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(m.selections[0].chosen->name(), "cpu");
  EXPECT_TRUE(m.choice.disable_shared_experts_fusion);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "a line");
  EXPECT_NE(lines[1].find("flashinfer_trtllm stands for recipe bf16"), std::string::npos) << lines[1];
}

TEST(OpenModel, ALayoutOfTheReferenceIsThereByName) {
  LoadOptions options;
  options.moe_runner_backend = "reference/rows8";
  const OpenedModel m = open_model(kModel, options, {});
  EXPECT_EQ(m.selections[0].chosen->name(), "reference/rows8");
}

TEST(OpenModel, UnknownArchitectureListsTheSupportedOnes) {
  const testing::ToyModel toy;
  std::ofstream(toy.folder() + "/config.json") << R"({"architectures": ["OtherForCausalLM"], "hidden_size": 1})";
  const Error e = refusal([&] { open_model(toy.folder(), {}, {}); });
  EXPECT_EQ(e.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(e.what()).find("OtherForCausalLM"), std::string::npos) << e.what();
  EXPECT_NE(std::string(e.what()).find("Qwen3MoeForCausalLM"), std::string::npos) << e.what();
}

TEST(LoadModel, TellsTheFacts) {
  LoadOptions options;
  options.engine.context_length = 1000;
  std::vector<Progress> progress;
  const LoadedModel m =
      load_model(open_model(kModel, options, {}), [&](const Progress& p) { progress.push_back(p); }, {});
  EXPECT_EQ(m.facts.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(m.facts.parameters, 7621376);  // metadata of the index file
  EXPECT_EQ(m.facts.file_bytes, 15242752);
  EXPECT_EQ(m.facts.bits_per_weight, 16.0);
  EXPECT_EQ(m.facts.recipe, "bf16");
  EXPECT_EQ(m.facts.runner, "cpu");
  EXPECT_EQ(m.facts.context_length, 1000);
  EXPECT_EQ(m.facts.kv_bytes_per_token, 4 * 2 * 2 * 64 * 2);            // layers, K and V, heads, columns, bytes
  EXPECT_EQ(m.facts.kv_bytes, 16 * 1008 * m.facts.kv_bytes_per_token);  // 16 requests, whole blocks of 16
  EXPECT_GE(m.facts.resident_bytes, m.facts.file_bytes);
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().done, 15242752u);
  EXPECT_EQ(m.generation.stop_strings, std::vector<std::string>{"\n\n"});
  EXPECT_NE(m.chat_template, nullptr);
  EXPECT_EQ(m.make_engine()->options().context_length, 1000);
  EXPECT_GT(read_limit_gbps(m), 0.0);
}

TEST(LoadModel, RunnersAnswerAlike) {
  std::vector<std::vector<std::int32_t>> answers;
  for (const char* runner : {"cpu", "reference"}) {
    LoadOptions options;
    options.moe_runner_backend = runner;
    const LoadedModel m = load_model(open_model(kModel, options, {}), {}, {});
    EXPECT_EQ(m.facts.runner, runner);
    const auto engine = m.make_engine();
    engine::Request request;
    request.prompt =
        m.tokenizer->encode("Question: Kira has 3 tickets. Wes has 4 tickets. How many?\nAnswer:", false, false);
    request.max_new_tokens = 12;
    engine->submit(request);
    answers.emplace_back();
    while (!engine->idle()) {
      for (const engine::Event& e : engine->step()) answers.back().push_back(e.token);
    }
  }
  EXPECT_EQ(answers[0].size(), 12u);
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(LoadModel, TensorsWithoutUseAreReported) {
  const testing::ToyModel toy;
  std::filesystem::copy(kModel + "/tokenizer.json", toy.folder() + "/tokenizer.json");
  std::string config;
  std::getline(std::ifstream(toy.folder() + "/config.json"), config, '\0');
  config.replace(config.find("\"num_hidden_layers\": 3"), 22, "\"num_hidden_layers\": 2");
  std::ofstream(toy.folder() + "/config.json") << config;
  std::vector<std::string> log;
  load_model(open_model(toy.folder(), {}, {}), {}, [&](LogLevel, std::string_view m) { log.emplace_back(m); });
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("tensors of the checkpoint have no use here: model.layers.2."), std::string::npos) << log[0];
}

TEST(Version, NamesTheInstructionSetInUse) {
  EXPECT_EQ(version_text().rfind("sluice ", 0), 0u);
  EXPECT_NE(version_text().find("in use: "), std::string::npos);
}

}  // namespace
}  // namespace sluice::app
