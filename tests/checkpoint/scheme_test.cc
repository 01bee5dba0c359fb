#include "checkpoint/scheme.h"

#include <cstring>
#include <numeric>

#include "checkpoint/scheme_fp8.h"
#include "checkpoint/scheme_plain.h"
#include "expert_files.h"

namespace sluice::ckpt {
namespace {

// Square experts and 2I = H among them, where shapes cannot tell one arrangement from another.
TEST(PlainScheme, EveryArrangementIsTheSameWeights) {
  for (const Sizes& s : {Sizes{3, 4, 4}, Sizes{3, 2, 4}, Sizes{2, 3, 5}, Sizes{1, 1, 1}}) {
    for (const Files files : {Files::per_expert, Files::stacked}) {
      for (const GateUp order : {GateUp::separate, GateUp::gate_then_up, GateUp::up_then_gate, GateUp::interleaved}) {
        for (const bool transposed : {false, true}) {
          SCOPED_TRACE(testing::Message() << "E " << s.experts << " I " << s.inner << " H " << s.width << " files "
                                          << static_cast<int>(files) << " order " << static_cast<int>(order)
                                          << " transposed " << transposed);
          const TempFolder folder;
          const ExpertNames names = arrangement(files, order, transposed);
          Builder b;
          add_experts(b, names, s);
          const auto checkpoint = b.open(folder);
          const auto source = plain_scheme().open(*checkpoint, map_of({names}));
          const ExpertWeights w = source->experts(0, layer(s, true));
          expect_experts(w, s);
          expect_biases(w, s);
          EXPECT_TRUE(source->unused().empty());
          EXPECT_TRUE(source->notes().empty());
        }
      }
    }
  }
}

TEST(PlainScheme, ViewsPointIntoTheMappedFile) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::interleaved, true);
  Builder b(DType::bf16);
  add_experts(b, names, {});
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  const ExpertWeights w = source->experts(0, layer({}));
  const TensorEntry& entry = *checkpoint->find("layers.0.experts.gate_up.weight");
  EXPECT_EQ(w.gate[0].codes.data, entry.data);
  EXPECT_EQ(w.up[0].codes.data, entry.data + 2);
  EXPECT_EQ(w.gate[1].codes.data, entry.data + 2 * 8 * 4);
  EXPECT_EQ(w.gate[0].codes.dtype, DType::bf16);
  EXPECT_EQ(w.gate[0].codes.row_stride, 2);
  EXPECT_EQ(w.gate[0].codes.col_stride, 8);
  EXPECT_TRUE(w.gate_bias.empty());
}

TEST(PlainScheme, ExpertsKeepTheMappingAlive) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::per_expert, GateUp::separate, false);
  Builder b;
  add_experts(b, names, {});
  auto checkpoint = b.open(folder);
  auto source = plain_scheme().open(*checkpoint, map_of({names}));
  const ExpertWeights w = source->experts(0, layer({}));
  source->release(0);
  source.reset();
  checkpoint.reset();
  expect_experts(w, {});
}

TEST(PlainScheme, NonGatedExpertsHaveNoGate) {
  const TempFolder folder;
  ExpertNames names = arrangement(Files::per_expert, GateUp::separate, false);
  names.gate.clear();
  Builder b;
  b.add_projection(names, names.up, 3, 4, 4, [](auto e, auto n, auto k) { return up_value({}, e, n, k); });
  b.add_projection(names, names.down, 3, 4, 4, [](auto e, auto n, auto k) { return down_value({}, e, n, k); });
  const auto checkpoint = b.open(folder);
  LayerSpec spec = layer({});
  spec.activation.kind = ActivationKind::relu2;
  const ExpertWeights w = plain_scheme().open(*checkpoint, map_of({names}))->experts(0, spec);
  EXPECT_TRUE(w.gate.empty());
  expect_matrix(w.up[2], 4, 4, [](auto n, auto h) { return up_value({}, 2, n, h); });
}

TEST(PlainScheme, LatentExpertsUseTheirOwnWidth) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::gate_then_up, false);
  Builder b;
  const Sizes s{2, 3, 5};
  add_experts(b, names, s);
  const auto checkpoint = b.open(folder);
  LayerSpec spec = layer(s);
  spec.hidden = 64;
  spec.expert_width = 5;
  expect_experts(plain_scheme().open(*checkpoint, map_of({names}))->experts(0, spec), s);
}

TEST(PlainScheme, EachLayerUsesTheArrangementItHas) {
  const TempFolder folder;
  const ExpertNames stacked = arrangement(Files::stacked, GateUp::gate_then_up, false);
  const ExpertNames single = arrangement(Files::per_expert, GateUp::separate, false);
  Builder b;
  add_experts(b, single, {});
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({stacked, single}));
  expect_experts(source->experts(0, layer({})), {});
  expect_contains(message_of([&] { source->experts(1, layer({})); }),
                  "layer 1 has no experts; expected one of layers.1.experts.gate_up.weight");
}

TEST(PlainScheme, MissingExpertTensorsAreCountedAndNamed) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::per_expert, GateUp::separate, false);
  Builder b;
  add_experts(b, names, {});
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  expect_contains(message_of([&] {
                    source->experts(0, layer({11, 4, 4}));
                  }),
                  "8 of 11 expert tensors of a layer are missing: layers.0.experts.3.gate.weight, "
                  "layers.0.experts.4.gate.weight, layers.0.experts.5.gate.weight, layers.0.experts.6.gate.weight, "
                  "layers.0.experts.7.gate.weight and 3 more");
}

TEST(PlainScheme, ShapesAreCheckedAgainstTheLayer) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::gate_then_up, false);
  Builder b;
  add_experts(b, names, {2, 3, 5});
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  const auto error = [&](const Sizes& s, bool bias) { return message_of([&] { source->experts(0, layer(s, bias)); }); };
  expect_contains(error({3, 3, 5}, false), folder.file("model.safetensors") +
                                               ": tensor \"layers.0.experts.gate_up.weight\": shape: found [2, 6, 5]; "
                                               "expected [3, 6, 5]");
  expect_contains(error({2, 5, 3}, false), "expected [2, 10, 3]");
  EXPECT_EQ(error({2, 3, 5}, true), "no error");
}

TEST(PlainScheme, TypesAreChecked) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::gate_then_up, false);
  Builder b;
  add_experts(b, names, {});
  const std::vector<std::int64_t> ints(4);
  b.writer().add("layers.0.norm", DType::i64, {4}, ints);
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  expect_contains(message_of([&] { source->tensor("norm", 0, 1, 4); }),
                  "tensor \"layers.0.norm\": dtype: found I64; expected BF16 or F16 or F32");
}

TEST(PlainScheme, MixedTypesWithinALayerAreRefused) {
  const TempFolder folder;
  const ExpertNames names = arrangement(Files::stacked, GateUp::separate, false);
  Builder b;
  b.add_projection(names, names.gate, 3, 4, 4, [](auto...) { return 0.0f; });
  b.add_projection(names, names.up, 3, 4, 4, [](auto...) { return 0.0f; });
  const std::vector<std::uint16_t> halves(48);
  b.writer().add("layers.0.experts.down.weight", DType::bf16, {3, 4, 4}, halves);
  const auto checkpoint = b.open(folder);
  expect_contains(message_of([&] { plain_scheme().open(*checkpoint, map_of({names}))->experts(0, layer({})); }),
                  "\"layers.0.experts.down.weight\": dtype: found BF16; expected F32");
}

TEST(PlainScheme, RolesOutsideExperts) {
  const TempFolder folder;
  Builder b;
  b.add("layers.0.norm", {3}, {1, 2, 3});
  b.add("out.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  b.add("rotary.inv_freq", {1}, {1});
  b.add("layers.7.mtp.weight", {1}, {1});
  b.add("stranger", {1}, {1});
  const auto checkpoint = b.open(folder);
  NameMap names = map_of({});
  names.ignored = {"*inv_freq", "layers.{L}.mtp.*"};
  const auto source = plain_scheme().open(*checkpoint, names);
  expect_matrix(source->tensor("norm", 0, 1, 3), 1, 3, [](auto, auto h) { return static_cast<float>(h + 1); });
  expect_matrix(source->tensor("out", kOutsideLayers, 2, 3), 2, 3,
                [](auto n, auto h) { return static_cast<float>(3 * n + h + 1); });
  EXPECT_TRUE(source->has("out", kOutsideLayers));
  EXPECT_FALSE(source->has("norm", 1));
  EXPECT_FALSE(source->has("unknown role", 0));
  EXPECT_EQ(source->unused(), std::vector<std::string>{"stranger"});
  EXPECT_EQ(source->bytes(0), 12u);
  EXPECT_EQ(source->bytes(kOutsideLayers), 24u);
  EXPECT_EQ(source->bytes(1), 0u);
  expect_contains(message_of([&] { source->tensor("norm", 5, 1, 3); }), "tensor \"layers.5.norm\" (norm) is missing");
  expect_contains(message_of([&] { source->tensor("out", kOutsideLayers, 3, 2); }),
                  "shape: found [2, 3]; expected [3, 2]");
  expect_contains(message_of([&] { source->tensor("norm", 0, 1, 4); }), "shape: found [3]; expected [4]");
  expect_contains(message_of([&] { source->tensor("unknown role", 0, 1, 1); }, ErrorCode::unsupported), "unknown role");
}

// Without anybody reading it: of the layer that is asked for and the next one, to their ends, which are farther away
// than the system reads at a time.
TEST(PlainScheme, WhatThePageCacheLacksIsReadAhead) {
  const TempFolder folder;
  constexpr std::int64_t kCols = 3 << 20;  // 12 MiB a tensor
  Builder b;
  for (int i = 0; i < 6; ++i) b.add("layers." + std::to_string(i) + ".norm", {kCols}, std::vector<float>(kCols));
  const auto checkpoint = b.open(folder);
  forget_cached(folder.file("model.safetensors"));
  const auto page_of = [&](int i, std::int64_t column) {
    return in_page_cache(checkpoint->shards()[0].tensors()[i].data + column * 4);
  };
  const auto first = [&](int i) { return page_of(i, 2048); };
  const auto last = [&](int i) { return page_of(i, kCols - 2048); };
  for (int i = 2; i < 6; ++i) {
    if (first(i) || last(i)) GTEST_SKIP() << "a file system that keeps everything";
  }
  const auto source = plain_scheme().open(*checkpoint, map_of({}));
  source->tensor("norm", 3, 1, kCols);
  const auto all = [&] { return first(3) && last(3) && first(4) && last(4); };
  for (int wait = 0; wait < 5000 && !all(); ++wait) usleep(1000);
  EXPECT_FALSE(last(2));
  EXPECT_TRUE(first(3));
  EXPECT_TRUE(last(3));
  EXPECT_TRUE(first(4));
  EXPECT_TRUE(last(4));
  EXPECT_FALSE(last(5));
}

TEST(PlainScheme, ReleaseGivesThePagesOfALayerBack) {
  const TempFolder folder;
  constexpr std::int64_t kCols = 1 << 20;  // 4 MiB a tensor
  Builder b;
  b.add("layers.0.norm", {kCols}, std::vector<float>(kCols, 1.0f));
  b.add("layers.1.norm", {kCols}, std::vector<float>(kCols, 2.0f));
  const auto checkpoint = b.open(folder);
  const auto source = plain_scheme().open(*checkpoint, map_of({}));
  const auto sum = [&](std::int64_t layer_index) {
    const auto* values = static_cast<const float*>(source->tensor("norm", layer_index, 1, kCols).codes.data);
    return std::accumulate(values, values + kCols, 0.0);
  };
  EXPECT_EQ(sum(0), 1.0 * kCols);
  EXPECT_EQ(sum(1), 2.0 * kCols);
  const std::int64_t before = resident_file_kb();
  source->release(0);
  EXPECT_LE(resident_file_kb(), before - 3 * 1024);
  EXPECT_GE(resident_file_kb(), before - 5 * 1024);
  EXPECT_EQ(sum(0), 1.0 * kCols);
}

TEST(PlainScheme, BytesOfALayerCountExpertsOnce) {
  const TempFolder folder;
  const ExpertNames single = arrangement(Files::per_expert, GateUp::separate, false);
  const ExpertNames stacked = arrangement(Files::stacked, GateUp::gate_then_up, false);
  Builder b;
  add_experts(b, single, {2, 3, 5});
  const auto checkpoint = b.open(folder);
  // 2 experts of three 3 x 5 matrices and of biases of 3, 3 and 5, in f32.
  EXPECT_EQ(plain_scheme().open(*checkpoint, map_of({stacked, single}))->bytes(0), 2u * (45 + 11) * 4);
}

TEST(PlainScheme, MisalignedTensorsAreCopied) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  std::string header = R"({"layers.0.norm":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  const std::vector<float> values = {1.5f, -3.0f};
  folder.write("model.safetensors", safetensors_bytes(header, {reinterpret_cast<const char*>(values.data()), 8}));
  const auto checkpoint = Checkpoint::open(folder.path());
  const auto source = plain_scheme().open(*checkpoint, map_of({}));
  const QuantTensor w = source->tensor("norm", 0, 1, 2);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.codes.data) % 4, 0u);
  EXPECT_EQ(source->tensor("norm", 0, 1, 2).codes.data, w.codes.data);
  source->release(0);
  expect_matrix(w, 1, 2, [&](auto, auto h) { return values[static_cast<std::size_t>(h)]; });
  ASSERT_EQ(source->notes().size(), 1u);
  expect_contains(source->notes()[0], "1 tensors (8 bytes) are not aligned");
}

TEST(PlainScheme, RefusesQuantisedCheckpoints) {
  const TempFolder folder;
  Builder b;
  const std::vector<std::uint8_t> codes(4);
  b.writer().add("layers.0.experts.0.gate.weight", DType::e4m3, {2, 2}, codes);
  b.writer().add("mask", DType::u8, {4}, codes);
  b.writer().add("layers.0.experts.0.gate.weight_packed", DType::u8, {4}, codes);
  const auto checkpoint = b.open(folder, R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(
      message_of([&] { find_scheme({plain_scheme()}, *checkpoint); }, ErrorCode::unsupported),
      folder.path() +
          ": no scheme reads these weights; expected one of: plain: 2 tensors are quantised (quant_method fp8), among "
          "them \"layers.0.experts.0.gate.weight\" of type F8_E4M3");
}

TEST(PlainScheme, ReadsBundledModels) {
  const auto checkpoint = Checkpoint::open(std::string(SLUICE_SOURCE_DIR) + "/models/gpt_oss");
  EXPECT_EQ(find_scheme({plain_scheme()}, *checkpoint).name, "plain");
  ExpertNames names;
  names.files = Files::stacked;
  names.gate_up_order = GateUp::interleaved;
  names.transposed = true;
  names.gate_up = "model.layers.{L}.mlp.experts.gate_up_proj";
  names.gate_up_bias = "model.layers.{L}.mlp.experts.gate_up_proj_bias";
  names.down = "model.layers.{L}.mlp.experts.down_proj";
  names.down_bias = "model.layers.{L}.mlp.experts.down_proj_bias";
  const auto source = plain_scheme().open(*checkpoint, map_of({names}));
  const ExpertWeights w = source->experts(3, layer({16, 128, 256}, true));
  // Element [5, 7, 2 * 9 + 1] of the file is row 9, column 7 of expert 5's up projection.
  const TensorEntry& entry = *checkpoint->find("model.layers.3.mlp.experts.gate_up_proj");
  Bf16 stored;
  std::memcpy(&stored, entry.data + 2 * ((5 * 256 + 7) * 256 + 19), 2);
  std::vector<float> row(256);
  decode_row(w.up[5], 9, row.data());
  EXPECT_EQ(row[7], to_float(stored));
  EXPECT_EQ(source->expert_recipe(3), Recipe::bf16);
}

// One scale of a matrix that is no larger than a block: the name says whose it is.
TEST(Fp8Dialect, ASingleScaleIsOfTheTensorUnlessItIsNamedAsABlocks) {
  TensorEntry weight, scale;
  weight.dtype = DType::e4m3;
  weight.shape = {96, 128};
  scale.shape = {1, 1};
  ModuleParts parts;
  parts.module = "m";
  parts.tensors[static_cast<std::size_t>(Part::weight)] = &weight;
  parts.tensors[static_cast<std::size_t>(Part::scale)] = &scale;
  EXPECT_EQ(fp8_dialect().format(parts, QuantConfig()), BlockFormat::fp8_tensor);
  parts.tensors[static_cast<std::size_t>(Part::scale)] = nullptr;
  parts.tensors[static_cast<std::size_t>(Part::scale_inv)] = &scale;
  EXPECT_EQ(fp8_dialect().format(parts, QuantConfig()), BlockFormat::fp8_block);
}

}  // namespace
}  // namespace sluice::ckpt
