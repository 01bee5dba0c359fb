#include "checkpoint/config.h"

#include "checkpoint/generation_config.h"
#include "checkpoint/rope_config.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

Fields fields(std::string_view text) { return {parse_config_json(text, "config.json"), "config.json"}; }
HfConfig config(std::string_view text) { return HfConfig::parse(text, "config.json"); }

TEST(Fields, ReadsTypesAliasesAndDefaults) {
  const Fields f =
      fields(R"({"n_routed_experts": 256, "eps": 1e-6, "tie": true, "act": "silu", "none": null, "whole": 8.0})");
  EXPECT_EQ(f.get_int({"num_experts", "num_local_experts", "n_routed_experts"}, kCountRange), 256);
  EXPECT_EQ(f.get_int({"whole"}, kDimRange), 8);
  EXPECT_DOUBLE_EQ(f.get_number({"eps"}, {0, 1}), 1e-6);
  EXPECT_TRUE(f.get_bool({"tie"}, false));
  EXPECT_EQ(f.get_string({"act"}), "silu");
  EXPECT_EQ(f.get_int({"none"}, kDimRange, 5), 5);
  EXPECT_EQ(f.get_int({"absent"}, kDimRange, 6), 6);
  EXPECT_FALSE(f.has({"none"}));
  EXPECT_EQ(f.maybe_number({"absent"}, {0, 1}), std::nullopt);
  EXPECT_EQ(f.get_string({"absent"}, "x"), "x");
}

TEST(Fields, ErrorsNameFileFieldFoundAndExpected) {
  const Fields f = fields(
      R"({"hidden_size": "2048", "n": -4, "big": 99999999, "frac": 1.5, "f": "x", "list": [1, "b"], "o": {"k": []}})");
  const auto error = [&](auto read) { return message_of(read); };
  EXPECT_EQ(error([&] { f.get_int({"hidden_size"}, kDimRange); }),
            "config.json: hidden_size: found string; expected an integer");
  EXPECT_EQ(error([&] { f.get_int({"n"}, kDimRange); }),
            "config.json: n: found -4; expected an integer from 1 to 1048576");
  EXPECT_EQ(error([&] { f.get_int({"big"}, kDimRange, 3); }),
            "config.json: big: found 99999999; expected an integer from 1 to 1048576");
  expect_contains(error([&] { f.get_int({"frac"}, kDimRange); }),
                  "config.json: frac: found number; expected an integer");
  EXPECT_EQ(error([&] { f.get_int({"a", "b"}, kDimRange); }), "config.json: a or b: missing; expected an integer");
  expect_contains(error([&] { f.get_number({"f"}, {0, 1}); }), "config.json: f: found string; expected a number");
  expect_contains(error([&] {
                    f.get_number({"frac"}, {0, 1});
                  }),
                  "config.json: frac: found 1.5; expected a number from 0 to 1");
  expect_contains(error([&] { f.get_bool({"f"}, true); }), "config.json: f: found string");
  expect_contains(error([&] { f.get_strings({"list"}); }), "config.json: list[0]: found integer; expected a string");
  expect_contains(error([&] { f.get_ints({"list"}, kDimRange); }), "config.json: list[1]: found string");
  expect_contains(error([&] { f.get_object({"o"}).get_string({"k"}); }),
                  "config.json: o: k: found array; expected a string");
  EXPECT_EQ(error([&] { fields("[]"); }), "config.json: found array; expected an object");
}

TEST(Fields, TwoSpellingsMustAgree) {
  EXPECT_EQ(fields(R"({"num_experts": 8, "num_local_experts": 8.0})")
                .get_int({"num_experts", "num_local_experts"}, kCountRange),
            8);
  const Fields f = fields(R"({"num_experts": 8, "num_local_experts": 16})");
  expect_contains(message_of([&] {
                    f.get_int({"num_experts", "num_local_experts"}, kCountRange);
                  }),
                  "config.json: num_local_experts: found 16 but num_experts is 8");
}

TEST(Fields, NonFiniteNumbersFailOnlyWhereTheyAreRead) {
  const Fields f = fields(
      R"({"limit": [0.0, Infinity], "a": NaN, "b": -Infinity, "c": {"__float__": "Infinity"}, "s": "NaN \" Infinity", "ok": 1})");
  EXPECT_EQ(f.get_int({"ok"}, kDimRange), 1);
  EXPECT_EQ(f.get_string({"s"}), "NaN \" Infinity");
  expect_contains(message_of([&] {
                    f.get_number({"a"}, {0, 1});
                  }),
                  "config.json: a: found {\"__float__\":\"NaN\"}; expected a finite number");
  expect_contains(message_of([&] { f.get_number({"b"}, {0, 1}); }), "-Infinity");
  expect_contains(message_of([&] { f.get_number({"c"}, {0, 1}); }), "finite");
  expect_contains(message_of([&] { f.get_int({"a"}, kDimRange); }), "config.json: a: found object");
}

TEST(HfConfig, BothGenerationsOfTheFormatGiveTheSame) {
  const HfConfig four =
      config(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16",
      "num_experts": 16, "rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
      "beta_fast": 16, "mscale": 0.707, "mscale_all_dim": 0.5, "truncate": false}, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072})");
  const HfConfig five =
      config(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "dtype": "bfloat16",
      "num_local_experts": 16, "max_position_embeddings": 131072, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
      "original_max_position_embeddings": 32768, "beta_fast": 16.0, "mscale": 0.707, "mscale_all_dim": 0.5, "truncate": false, "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(four.dtype(), DType::bf16);
  EXPECT_EQ(four.dtype(), five.dtype());
  EXPECT_EQ(four.model_type(), five.model_type());
  EXPECT_EQ(four.architectures(), five.architectures());
  const Keys experts = {"num_experts", "num_local_experts"};
  EXPECT_EQ(four.fields().get_int(experts, kCountRange), five.fields().get_int(experts, kCountRange));
  const RopeConfig rope = read_rope(four.fields());
  EXPECT_EQ(rope, read_rope(five.fields()));
  EXPECT_EQ(rope.type, RopeType::yarn);
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.original_max_positions, 32768);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_EQ(rope.mscale, 0.707);
  EXPECT_EQ(rope.mscale_all_dim, 0.5);
  EXPECT_EQ(rope.attention_factor, std::nullopt);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.partial_rotary_factor, 0.5);
}

TEST(HfConfig, NestedTextModelWinsOverTheOuterOne) {
  const HfConfig c =
      config(R"({"model_type": "outer", "architectures": ["A"], "tie_word_embeddings": true, "hidden_size": 7,
      "text_config": {"model_type": "inner", "hidden_size": 64, "torch_dtype": "float16", "bad": "x"}})");
  EXPECT_EQ(c.model_type(), "inner");
  EXPECT_EQ(c.fields().get_int({"hidden_size"}, kDimRange), 64);
  EXPECT_EQ(c.root().get_int({"hidden_size"}, kDimRange), 7);
  EXPECT_TRUE(c.fields().get_bool({"tie_word_embeddings"}, false));
  EXPECT_EQ(c.dtype(), DType::f16);
  expect_contains(message_of([&] { c.fields().get_int({"bad"}, kDimRange); }),
                  "config.json: text_config.bad: found string");
  expect_contains(message_of([&] { config(R"({"text_config": 3})"); }), "config.json: text_config: found integer");
}

TEST(HfConfig, TypesOfWeights) {
  EXPECT_EQ(config(R"({"dtype": "torch.float32"})").dtype(), DType::f32);
  EXPECT_EQ(config(R"({"dtype": "auto"})").dtype(), std::nullopt);
  EXPECT_EQ(config("{}").dtype(), std::nullopt);
  expect_contains(message_of([] { config(R"({"dtype": 16})"); }), "config.json: dtype: found integer");
}

TEST(HfConfig, QuantizationIsFoundOnEitherLevel) {
  EXPECT_EQ(config("{}").quantization(), std::nullopt);
  EXPECT_EQ(config(R"({"quantization_config": {"quant_method": "fp8"}})").quantization()->get_string({"quant_method"}),
            "fp8");
  EXPECT_TRUE(config(R"({"text_config": {"quantization_config": {}}})").quantization());
}

TEST(RopeConfig, PlainSpellings) {
  EXPECT_EQ(read_rope(fields("{}")).theta, 10000.0);
  EXPECT_EQ(read_rope(fields(R"({"rope_theta": 5e5, "rope_scaling": null})")).theta, 5e5);
  const RopeConfig five = read_rope(fields(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})"));
  EXPECT_EQ(five, read_rope(fields(R"({"rope_theta": 500000})")));
  EXPECT_EQ(five.type, RopeType::plain);
  EXPECT_EQ(read_rope(fields(R"({"rope_scaling": {"type": "mrope", "mrope_section": [1]}})")).type, RopeType::plain);
}

TEST(RopeConfig, LinearDynamicLlama3) {
  const RopeConfig linear =
      read_rope(fields(R"({"rope_scaling": {"type": "linear", "factor": 2}, "max_position_embeddings": 512})"));
  EXPECT_EQ(linear.type, RopeType::linear);
  EXPECT_EQ(linear.factor, 2.0);
  const RopeConfig dynamic =
      read_rope(fields(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 8}, "max_position_embeddings": 512})"));
  EXPECT_EQ(dynamic.type, RopeType::dynamic);
  EXPECT_EQ(dynamic.original_max_positions, 512);
  const RopeConfig llama3 =
      read_rope(fields(R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 16.0,
      "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 8192}, "max_position_embeddings": 99})"));
  EXPECT_EQ(llama3.type, RopeType::llama3);
  EXPECT_EQ(llama3.high_freq_factor, 2.0);
  EXPECT_EQ(llama3.original_max_positions, 8192);
  EXPECT_EQ(rope_type_name(llama3.type), "llama3");
}

TEST(RopeConfig, OneSectionForEachLayerType) {
  const Fields f =
      fields(R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}, "max_position_embeddings": 8})");
  EXPECT_EQ(read_rope(f, {}, "full_attention").theta, 1e6);
  EXPECT_EQ(read_rope(f, {}, "full_attention").type, RopeType::linear);
  EXPECT_EQ(read_rope(f, {}, "sliding_attention").theta, 1e4);
  EXPECT_EQ(read_rope(f, {}, "sliding_attention").type, RopeType::plain);
  expect_contains(message_of([&] { read_rope(f, {}, "chunked_attention"); }),
                  "config.json: rope_parameters: chunked_attention: missing");
}

TEST(RopeConfig, ContradictionsAreErrors) {
  expect_contains(message_of([] {
                    read_rope(fields(R"({"rope_theta": 500, "rope_parameters": {"rope_type": "default",
                    "rope_theta": 10000}})"));
                  }),
                  "config.json: rope_theta: 500");
  expect_contains(message_of([] {
                    read_rope(fields(R"({"rope_parameters": {"rope_type": "yarn", "factor": 2},
                    "rope_scaling": {"type": "linear", "factor": 2}, "max_position_embeddings": 8})"));
                  }),
                  "different rope types");
  expect_contains(message_of(
                      [] {
                        read_rope(fields(R"({"rope_scaling": {"type": "linear", "factor": 2, "mscale_all_dim": 1},
                        "max_position_embeddings": 8})"));
                      },
                      ErrorCode::unsupported),
                  "mscale_all_dim");
  expect_contains(message_of([] {
                    read_rope(fields(R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_slow": 0},
                    "max_position_embeddings": 8})"));
                  }),
                  "beta_slow");
}

TEST(RopeConfig, AFamilyHasDefaultsOfItsOwn) {
  const RopeConfig rope = read_rope(fields("{}"), {.theta = 1e6, .partial_rotary_factor = 0.5});
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(read_rope(fields(R"({"rope_theta": 7})"), {.theta = 1e6}).theta, 7);
}

TEST(RopeConfig, RefusesWhatCannotBeComputed) {
  expect_contains(
      message_of([] { read_rope(fields(R"({"rope_scaling": {"type": "longrope"}})")); }, ErrorCode::unsupported),
      "config.json: rope_scaling: type: found \"longrope\"; expected default");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_theta": 0})")); }), "config.json: rope_theta: found 0");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_theta": "1e4"})")); }),
                  "config.json: rope_theta: found string");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_scaling": {"type": "yarn"}})")); }),
                  "config.json: rope_scaling: factor: missing");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_scaling": {"type": "yarn", "factor": NaN}})")); }),
                  "config.json: rope_scaling: factor: found");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_scaling": {"type": "linear", "factor": 2}})")); }),
                  "max_position_embeddings: missing");
  expect_contains(message_of([] { read_rope(fields(R"({"rope_scaling": []})")); }),
                  "config.json: rope_scaling: found array");
}

GenerationConfig generation(std::string_view text, std::string_view config_text = "{}") {
  return read_generation(Fields(parse_config_json(text, "generation_config.json"), "generation_config.json"),
                         fields(config_text));
}

TEST(GenerationConfig, ReadsEveryField) {
  const GenerationConfig g =
      generation(R"({"eos_token_id": [2, 7], "bos_token_id": 1, "pad_token_id": 0, "do_sample": true,
      "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.05, "max_length": 4096,
      "max_new_tokens": 32, "stop_strings": "\n\n"})");
  GenerationConfig want;
  want.eos_token_ids = {2, 7};
  want.bos_token_id = 1;
  want.pad_token_id = 0;
  want.do_sample = true;
  want.temperature = 0.6;
  want.top_k = 20;
  want.top_p = 0.95;
  want.min_p = 0.01;
  want.repetition_penalty = 1.05;
  want.max_length = 4096;
  want.max_new_tokens = 32;
  want.stop_strings = {"\n\n"};
  EXPECT_EQ(g, want);
}

TEST(GenerationConfig, FallsBackToConfigForTokenIds) {
  const std::string_view config_text = R"({"eos_token_id": 5, "bos_token_id": 6, "pad_token_id": null})";
  EXPECT_EQ(generation(R"({"eos_token_id": 9})", config_text).eos_token_ids, std::vector<std::int64_t>{9});
  EXPECT_EQ(generation("{}", config_text).eos_token_ids, std::vector<std::int64_t>{5});
  const GenerationConfig none = read_generation(std::nullopt, fields(config_text));
  EXPECT_EQ(none.eos_token_ids, std::vector<std::int64_t>{5});
  EXPECT_EQ(none.bos_token_id, 6);
  EXPECT_EQ(none.pad_token_id, std::nullopt);
  EXPECT_EQ(none.temperature, std::nullopt);
  EXPECT_TRUE(none.stop_strings.empty());
}

TEST(GenerationConfig, MinusOneMeansNone) {
  const GenerationConfig g =
      generation(R"({"eos_token_id": [-1, 3], "pad_token_id": -1, "top_k": -1, "stop_strings": ["a", "b"]})");
  EXPECT_EQ(g.eos_token_ids, std::vector<std::int64_t>{3});
  EXPECT_EQ(g.pad_token_id, std::nullopt);
  EXPECT_EQ(g.top_k, 0);
  EXPECT_EQ(g.stop_strings, (std::vector<std::string>{"a", "b"}));
}

TEST(GenerationConfig, RefusesBadValues) {
  expect_contains(message_of([] { generation(R"({"eos_token_id": "</s>"})"); }),
                  "generation_config.json: eos_token_id: found string");
  expect_contains(message_of([] { generation(R"({"eos_token_id": [1, -2]})"); }),
                  "generation_config.json: eos_token_id[1]: found -2");
  expect_contains(message_of([] { generation(R"({"eos_token_id": 4294967296})"); }), "eos_token_id: found 4294967296");
  expect_contains(message_of([] { generation(R"({"temperature": -1})"); }),
                  "generation_config.json: temperature: found -1");
  expect_contains(message_of([] { generation(R"({"top_p": NaN})"); }), "generation_config.json: top_p: found");
  expect_contains(message_of([] { generation(R"({"top_p": 1.5})"); }), "top_p: found 1.5");
  expect_contains(message_of([] { generation(R"({"stop_strings": [""]})"); }), "stop_strings: found an empty string");
  expect_contains(message_of([] { generation(R"({"do_sample": 1})"); }),
                  "do_sample: found integer; expected true or false");
  expect_contains(message_of([] { generation("{}", R"({"eos_token_id": true})"); }),
                  "config.json: eos_token_id: found bool");
}

}  // namespace
}  // namespace sluice::ckpt
