// Checkpoints as they come: two layouts of experts in one file, biases of another type than the weights, shapes that do
// not tell the orientation.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "core/error.h"
#include "model/golden.h"
#include "numerics/bf16.h"

namespace sluice::testing {
namespace {

constexpr double kRelativeL2 = 2e-5;
constexpr double kNoticed = 1e-3;

struct Tensor {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Tensor>;

Tensors read_part(const std::string& family, const std::string& part) {
  const ckpt::SafetensorsFile file(golden_source(family) + "/" + part + ".safetensors");
  Tensors out;
  for (const ckpt::TensorEntry& t : file.tensors()) {
    out[t.name] = {t.dtype, t.shape, {t.data, t.data + t.bytes}};
  }
  return out;
}

Tensors read_all(const std::string& family) {
  Tensors all = read_part(family, "model");
  if (has_layout(family, "experts")) all.merge(read_part(family, "experts"));
  return all;
}

// The golden's folder with other weights in it.
class Rewritten {
 public:
  Rewritten(const std::string& family, const Tensors& tensors) : folder_({family}) {
    for (const char* name : {"model", "model-00001-of-00002", "model-00002-of-00002"}) {
      std::filesystem::remove(folder_.path() + "/" + name + ".safetensors");
    }
    ckpt::SafetensorsWriter writer;
    for (const auto& [name, t] : tensors) writer.add(name, t.dtype, t.shape, std::span(t.bytes));
    writer.write(folder_.path() + "/model.safetensors");
  }
  const std::string& path() const { return folder_.path(); }

 private:
  GoldenFolder folder_;
};

TestDecoder load(const std::string& path) {
  TestDecoderOptions options;
  options.compute = DType::f32;
  return load_test_decoder(path, options);
}

double worst(const TestDecoder& t, const std::string& family) {
  return compare_golden(*t.decoder, golden_prompts(family), 1024).worst;
}

bool names(const std::string& tensor, const std::string& part) { return tensor.find(part) != std::string::npos; }

void to_f32(Tensor& t) {
  const std::size_t count = t.bytes.size() / sizeof(std::uint16_t);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, t.bytes.data() + i * sizeof bits, sizeof bits);
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    std::memcpy(&values[i], &wide, sizeof wide);
  }
  t.dtype = DType::f32;
  t.bytes.resize(count * sizeof(float));
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
}

class MixedLayouts : public ::testing::TestWithParam<std::string> {};

// The first layer with experts as stacked tensors, the others one tensor an expert.
TEST_P(MixedLayouts, InOneFile) {
  const Tensors fused = read_part(GetParam(), "fused");
  Tensors tensors = read_all(GetParam());
  const std::string layer = fused.begin()->first.substr(0, std::string("model.layers.0.").size());
  for (auto it = tensors.begin(); it != tensors.end();) {
    const bool replaced = names(it->first, layer) && (names(it->first, ".experts.") || names(it->first, "sparse_moe"));
    it = replaced && !names(it->first, "shared") ? tensors.erase(it) : std::next(it);
  }
  for (const auto& [name, t] : fused) {
    if (names(name, layer)) tensors[name] = t;
  }
  const Rewritten folder(GetParam(), tensors);
  const TestDecoder t = load(folder.path());
  EXPECT_LE(worst(t, GetParam()), kRelativeL2);
  EXPECT_EQ(t.weights->unused(), std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Families, MixedLayouts,
                         ::testing::Values("glm4_moe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
                         [](const auto& test) { return test.param; });

// Biases, norms and sinks in f32 beside bf16 matrices mean the same.
TEST(BiasTypes, SmallTensorsInFloat32) {
  for (const char* family : {"gpt_oss", "qwen2_moe", "glm4_moe"}) {
    Tensors tensors = read_all(family);
    int changed = 0;
    for (auto& [name, t] : tensors) {
      const bool is_small = names(name, "bias") || names(name, "norm") || names(name, "sinks");
      if (!is_small || t.dtype != DType::bf16) continue;
      to_f32(t);
      ++changed;
    }
    EXPECT_GT(changed, 0);
    const Rewritten folder(family, tensors);
    EXPECT_LE(worst(load(folder.path()), family), kRelativeL2) << family;
  }
}

// A correction bias rounded to bf16 chooses other experts: values around 6.9 that differ by hundredths become equal.
TEST(BiasTypes, CorrectionBiasNeedsFloat32) {
  Tensors tensors = read_all("glm4_moe");
  for (auto& [name, t] : tensors) {
    if (!names(name, "e_score_correction_bias")) continue;
    ASSERT_EQ(t.dtype, DType::f32);
    for (std::size_t i = 0; i < t.bytes.size(); i += sizeof(float)) {
      float value = 0.0f;
      std::memcpy(&value, t.bytes.data() + i, sizeof value);
      value = to_float(to_bf16(value));
      std::memcpy(t.bytes.data() + i, &value, sizeof value);
    }
  }
  const Rewritten folder("glm4_moe", tensors);
  EXPECT_GT(worst(load(folder.path()), "glm4_moe"), kNoticed);
}

void expect_refused(const std::string& path, const TestDecoderOptions& options, const std::string& part) {
  try {
    load_test_decoder(path, options);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// gate_up of these goldens is square, [E, H, H]; only the family knows which way round it is. Read the wrong way, the
// shape of down tells.
TEST(SquareTensors, OrientationIsOfTheFamily) {
  for (const GoldenChoice& choice : {GoldenChoice{"gpt_oss"}, GoldenChoice{"mixtral", "fused"}}) {
    const Tensors tensors = read_part(choice.family, choice.family == "gpt_oss" ? "model" : "fused");
    const Tensor& together = tensors.at("model.layers.0.mlp.experts.gate_up_proj");
    ASSERT_EQ(together.shape[1], together.shape[2]);
    const GoldenFolder folder(choice);
    TestDecoderOptions options;
    options.change_names = [](ckpt::NameMap& map) {
      for (ckpt::ExpertNames& n : map.experts) n.transposed = !n.transposed;
    };
    expect_refused(folder.path(), options, "experts.down_proj");
  }
}

TEST(MissingTensors, AreNamed) {
  Tensors tensors = read_all("gpt_oss");
  tensors.erase("model.layers.1.mlp.experts.down_proj_bias");
  const Rewritten folder("gpt_oss", tensors);
  expect_refused(folder.path(), {}, "model.layers.1.mlp.experts.down_proj_bias");
  Tensors glm = read_all("glm4_moe");
  glm.erase("model.layers.2.mlp.gate.e_score_correction_bias");
  const Rewritten other("glm4_moe", glm);
  expect_refused(other.path(), {}, "model.layers.2.mlp.gate.e_score_correction_bias");
}

}  // namespace
}  // namespace sluice::testing
