#include "checkpoint/scheme.h"

#include <cstring>
#include <functional>

#include "checkpoint/safetensors_writer.h"
#include "checkpoint/scheme_plain.h"
#include "numerics/bf16.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

using Files = ExpertNames::Files;
using GateUp = ExpertNames::GateUp;

// Every weight is a number that tells where it belongs, exact in bf16 up to 256: so E * 2I * H <= 256.
struct Sizes {
  std::int64_t experts = 3, inner = 4, width = 4;
};
float gate_value(const Sizes& s, std::int64_t e, std::int64_t n, std::int64_t h) {
  return static_cast<float>((e * s.inner + n) * s.width + h);
}
float up_value(const Sizes& s, std::int64_t e, std::int64_t n, std::int64_t h) {
  return -gate_value(s, e, n, h) - 0.5f;
}
float down_value(const Sizes& s, std::int64_t e, std::int64_t h, std::int64_t n) {
  return 64.0f + static_cast<float>((e * s.width + h) * s.inner + n);
}
float gate_bias_value(std::int64_t e, std::int64_t n) { return static_cast<float>(10 * e + n); }
float up_bias_value(std::int64_t e, std::int64_t n) { return -gate_bias_value(e, n) - 1.0f; }
float down_bias_value(std::int64_t e, std::int64_t h) { return gate_bias_value(e, h) + 0.25f; }

LayerSpec layer(const Sizes& s, bool bias = false) {
  LayerSpec spec;
  spec.hidden = s.width;
  spec.intermediate = s.inner;
  spec.routing.experts = static_cast<std::int32_t>(s.experts);
  spec.routing.top_k = 1;
  spec.has_bias = bias;
  return spec;
}

using Element = std::function<float(std::int64_t e, std::int64_t n, std::int64_t k)>;

// A one-layer checkpoint under construction. Data is f32 unless `type` says bf16.
class Builder {
 public:
  explicit Builder(DType type = DType::f32) : type_(type) {}

  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    std::string bytes;
    for (const float v : values) {
      const Bf16 half = to_bf16(v);
      bytes.append(type_ == DType::f32 ? reinterpret_cast<const char*>(&v) : reinterpret_cast<const char*>(&half),
                   type_ == DType::f32 ? 4 : 2);
    }
    data_.push_back(std::make_unique<std::string>(std::move(bytes)));
    writer_.add(name, type_, std::move(shape), std::as_bytes(std::span(*data_.back())));
  }

  // A projection of `rows` outputs and `cols` inputs for every expert, stored as `names` says.
  void add_projection(const ExpertNames& names, const std::string& pattern, std::int64_t experts, std::int64_t rows,
                      std::int64_t cols, const Element& element) {
    std::vector<std::int64_t> shape = names.transposed ? std::vector{cols, rows} : std::vector{rows, cols};
    std::vector<float> all;
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<float> one;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        for (std::int64_t j = 0; j < shape[1]; ++j)
          one.push_back(names.transposed ? element(e, j, i) : element(e, i, j));
      }
      if (names.files == Files::per_expert) add(expand(pattern, 0, e), shape, one);
      all.insert(all.end(), one.begin(), one.end());
    }
    if (names.files != Files::stacked) return;
    shape.insert(shape.begin(), experts);
    add(expand(pattern, 0), shape, all);
  }

  void add_bias(const ExpertNames& names, const std::string& pattern, std::int64_t experts, std::int64_t count,
                const std::function<float(std::int64_t e, std::int64_t n)>& element) {
    std::vector<float> all;
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<float> one;
      for (std::int64_t n = 0; n < count; ++n) one.push_back(element(e, n));
      if (names.files == Files::per_expert) add(expand(pattern, 0, e), {count}, one);
      all.insert(all.end(), one.begin(), one.end());
    }
    if (names.files == Files::stacked) add(expand(pattern, 0), {experts, count}, all);
  }

  SafetensorsWriter& writer() { return writer_; }

  std::unique_ptr<Checkpoint> open(const TempFolder& folder, std::string_view config = "{}") const {
    folder.write("config.json", config);
    writer_.write(folder.file("model.safetensors"));
    return Checkpoint::open(folder.path());
  }

 private:
  DType type_;
  SafetensorsWriter writer_;
  std::vector<std::unique_ptr<std::string>> data_;
};

ExpertNames arrangement(Files files, GateUp order, bool transposed) {
  const std::string stem = files == Files::per_expert ? "layers.{L}.experts.{E}." : "layers.{L}.experts.";
  ExpertNames n;
  n.files = files;
  n.gate_up_order = order;
  n.transposed = transposed;
  if (order == GateUp::separate) {
    n.gate = stem + "gate.weight";
    n.up = stem + "up.weight";
    n.gate_bias = stem + "gate.bias";
    n.up_bias = stem + "up.bias";
  } else {
    n.gate_up = stem + "gate_up.weight";
    n.gate_up_bias = stem + "gate_up.bias";
  }
  n.down = stem + "down.weight";
  n.down_bias = stem + "down.bias";
  return n;
}

// Which projection and row of it output `n` of the fused tensor is.
std::pair<bool, std::int64_t> fused_row(GateUp order, std::int64_t inner, std::int64_t n) {
  if (order == GateUp::interleaved) return {n % 2 == 1, n / 2};
  const bool second = n >= inner;
  return {order == GateUp::gate_then_up ? second : !second, n % inner};
}

void add_experts(Builder& b, const ExpertNames& names, const Sizes& s) {
  const auto gate = [&](std::int64_t e, std::int64_t n, std::int64_t h) { return gate_value(s, e, n, h); };
  const auto up = [&](std::int64_t e, std::int64_t n, std::int64_t h) { return up_value(s, e, n, h); };
  const auto down = [&](std::int64_t e, std::int64_t h, std::int64_t n) { return down_value(s, e, h, n); };
  const GateUp order = names.gate_up_order;
  if (order == GateUp::separate) {
    b.add_projection(names, names.gate, s.experts, s.inner, s.width, gate);
    b.add_projection(names, names.up, s.experts, s.inner, s.width, up);
    b.add_bias(names, names.gate_bias, s.experts, s.inner, gate_bias_value);
    b.add_bias(names, names.up_bias, s.experts, s.inner, up_bias_value);
  } else {
    b.add_projection(names, names.gate_up, s.experts, 2 * s.inner, s.width,
                     [&](std::int64_t e, std::int64_t n, std::int64_t h) {
                       const auto [is_up, row] = fused_row(order, s.inner, n);
                       return is_up ? up(e, row, h) : gate(e, row, h);
                     });
    b.add_bias(names, names.gate_up_bias, s.experts, 2 * s.inner, [&](std::int64_t e, std::int64_t n) {
      const auto [is_up, row] = fused_row(order, s.inner, n);
      return is_up ? up_bias_value(e, row) : gate_bias_value(e, row);
    });
  }
  b.add_projection(names, names.down, s.experts, s.width, s.inner, down);
  b.add_bias(names, names.down_bias, s.experts, s.width, down_bias_value);
}

NameMap map_of(std::vector<ExpertNames> experts) {
  return {{{"norm", "layers.{L}.norm"}, {"out", "out.weight"}}, std::move(experts), {}};
}

void expect_matrix(const QuantTensor& w, std::int64_t rows, std::int64_t cols,
                   const std::function<float(std::int64_t, std::int64_t)>& want) {
  ASSERT_EQ(w.codes.rows, rows);
  ASSERT_EQ(w.codes.cols, cols);
  EXPECT_EQ(w.block_scale.data, nullptr);
  EXPECT_EQ(w.tensor_scale, 1.0f);
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t n = 0; n < rows; ++n) {
    decode_row(w, n, row.data());
    for (std::int64_t k = 0; k < cols; ++k) ASSERT_EQ(row[static_cast<std::size_t>(k)], want(n, k)) << n << ", " << k;
  }
}

void expect_experts(const ExpertWeights& w, const Sizes& s) {
  ASSERT_EQ(w.count(), s.experts);
  ASSERT_EQ(w.gate.size(), w.up.size());
  ASSERT_EQ(w.down.size(), w.up.size());
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    expect_matrix(w.gate[i], s.inner, s.width, [&](auto n, auto h) { return gate_value(s, e, n, h); });
    expect_matrix(w.up[i], s.inner, s.width, [&](auto n, auto h) { return up_value(s, e, n, h); });
    expect_matrix(w.down[i], s.width, s.inner, [&](auto h, auto n) { return down_value(s, e, h, n); });
  }
}

void expect_biases(const ExpertWeights& w, const Sizes& s) {
  ASSERT_EQ(w.gate_bias.size(), w.up.size());
  ASSERT_EQ(w.up_bias.size(), w.up.size());
  ASSERT_EQ(w.down_bias.size(), w.up.size());
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    ASSERT_EQ(w.gate_bias[i].count, s.inner);
    ASSERT_EQ(w.down_bias[i].count, s.width);
    for (std::int64_t n = 0; n < s.inner; ++n) {
      EXPECT_EQ(decode_bias(w.gate_bias[i], n), gate_bias_value(e, n));
      EXPECT_EQ(decode_bias(w.up_bias[i], n), up_bias_value(e, n));
    }
    for (std::int64_t h = 0; h < s.width; ++h) EXPECT_EQ(decode_bias(w.down_bias[i], h), down_bias_value(e, h));
  }
}

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

}  // namespace
}  // namespace sluice::ckpt
