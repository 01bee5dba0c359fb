#include "text/tokenizer.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "text/byte_alphabet.h"
#include "text/unicode.h"
#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

// A byte-level model: letters, the space, the two bytes of an e with acute accent, two merges.
std::string file(const std::string& more = "") {
  return R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4,"Ã":5,"©":6},
      "merges":["a b","Ġ ab"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
      "use_regex":true},"decoder":{"type":"ByteLevel"},
      "added_tokens":[{"id":7,"content":"<s>","special":true},{"id":8,"content":"</s>","special":true},
                      {"id":9,"content":"<x>","special":false}])" +
         more + "}";
}

const char* const kTemplate = R"(,"post_processor":{"type":"TemplateProcessing","single":[
    {"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],
    "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[8],"tokens":["</s>"]}}})";

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer t = tokenizer_of(file());
  EXPECT_EQ(encode(t, "ab ab\u00E9<s>b"), (Ids{3, 4, 5, 6, 7, 1}));
  EXPECT_EQ(t.decode({3, 4, 5, 6, 7, 1}, true), "ab ab\u00E9b");
  EXPECT_EQ(t.decode({3, 4, 5, 6, 7, 1}, false), "ab ab\u00E9<s>b");
  EXPECT_EQ(encode(t, ""), Ids{});
  EXPECT_EQ(t.decode({}, false), "");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer t = tokenizer_of(file());
  EXPECT_EQ(t.vocab_size(), 10);
  EXPECT_EQ(t.token_text(4), " ab");
  EXPECT_EQ(t.token_text(6), "\xA9");
  EXPECT_EQ(t.token_text(7), "<s>");
  EXPECT_EQ(t.token_text(10), "");
  EXPECT_EQ(t.token_text(-1), "");
  EXPECT_EQ(t.token(4), "Ġab");
  EXPECT_EQ(t.token_id("Ġab"), 4);
  EXPECT_EQ(t.token_id("</s>"), 8);
  EXPECT_EQ(t.token_id("zz"), std::nullopt);
  EXPECT_TRUE(t.is_special(7));
  EXPECT_FALSE(t.is_special(9));
  EXPECT_FALSE(t.is_special(0));
  EXPECT_FALSE(t.is_special(-1));
}

TEST(Tokenizer, SpecialTokensInTheTextOnlyWhenAsked) {
  const Tokenizer t = tokenizer_of(file());
  EXPECT_EQ(t.encode("a<s><x>", false, true), (Ids{0, 7, 9}));
  EXPECT_EQ(t.encode("a<s><x>", false, false), (Ids{0, 9}));  // '<', 's' and '>' are not in this vocabulary
}

TEST(Tokenizer, PostProcessorAddsTokensOnlyWhenAsked) {
  const Tokenizer t = tokenizer_of(file(kTemplate));
  EXPECT_EQ(t.encode("a", true, true), (Ids{7, 0, 8}));
  EXPECT_EQ(t.encode("", true, true), (Ids{7, 8}));
  EXPECT_EQ(t.encode("a", false, true), (Ids{0}));
  EXPECT_EQ(t.encode("<s>a", true, true), (Ids{7, 7, 0, 8}));  // a text that has its BOS must not ask for one
}

TEST(Tokenizer, PostProcessorsOfOtherKinds) {
  const std::string roberta = R"({"type":"RobertaProcessing","sep":["</s>",8],"cls":["<s>",7]})";
  EXPECT_EQ(tokenizer_of(file(R"(,"post_processor":)" + roberta)).encode("a", true, true), (Ids{7, 0, 8}));
  const std::string both = R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + roberta + "," + roberta + "]}";
  EXPECT_EQ(tokenizer_of(file(R"(,"post_processor":)" + both)).encode("a", true, true), (Ids{7, 7, 0, 8, 8}));
}

TEST(Tokenizer, ConfigNamesTheSpecialTokens) {
  const Tokenizer t = tokenizer_of(
      file(),
      R"({"bos_token":{"content":"<s>","special":true},"eos_token":"</s>","pad_token":"lost","unk_token":null})");
  EXPECT_EQ(t.bos_id(), 7);
  EXPECT_EQ(t.eos_id(), 8);
  EXPECT_EQ(t.pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer_of(file()).bos_id(), std::nullopt);
}

TEST(Tokenizer, ExplicitBosInTheConfigReplacesThePostProcessor) {
  const auto ids = [](const std::string& more, const std::string& flags) {
    return tokenizer_of(file(more), R"({"bos_token":"<s>","eos_token":"</s>")" + flags + "}").encode("a", true, true);
  };
  EXPECT_EQ(ids("", R"(,"add_bos_token":true)"), (Ids{7, 0}));
  EXPECT_EQ(ids("", R"(,"add_bos_token":true,"add_eos_token":true)"), (Ids{7, 0, 8}));
  EXPECT_EQ(ids(kTemplate, R"(,"add_bos_token":false)"), (Ids{0}));
  EXPECT_EQ(ids(kTemplate, R"(,"add_bos_token":true)"), (Ids{7, 0}));
  EXPECT_EQ(ids(kTemplate, ""), (Ids{7, 0, 8}));
  EXPECT_EQ(ids(kTemplate, R"(,"add_bos_token":null)"), (Ids{7, 0, 8}));
  EXPECT_EQ(tokenizer_of(file(), R"({"bos_token":null,"add_bos_token":true})").encode("a", true, true), (Ids{0}));
}

TEST(Tokenizer, BrokenUtf8IsReplacedFirst) {
  const Tokenizer t = tokenizer_of(R"({"model":{"vocab":{"a":0,"\uFFFD":1},"merges":[]}})");
  EXPECT_EQ(encode(t,
                   "a\xFF\xF0\x9F\x98"
                   "a\xE4"),
            (Ids{0, 1, 1, 0, 1}));
}

TEST(Tokenizer, NormalizerRunsBetweenTheTwoKindsOfAddedTokens) {
  const Tokenizer t = tokenizer_of(R"({"model":{"vocab":{"x":0,"y":1},"merges":[]},"normalizer":{"type":"Lowercase"},
      "added_tokens":[{"id":2,"content":"X","normalized":false},{"id":3,"content":"YY","normalized":true}]})");
  EXPECT_EQ(encode(t, "XxYyY"), (Ids{2, 0, 3, 1}));
}

// The cache of pieces must not change what a piece becomes.
TEST(Tokenizer, RepeatedPiecesAreEncodedTheSameEachTime) {
  const Tokenizer t = tokenizer_of(R"({"model":{"vocab":{"a":0,"b":1,"aa":2,"ab":3,"aab":4,"bb":5,"bbb":6},
      "merges":["a a","a b","aa b","b b","bb b"]},"pre_tokenizer":{"type":"WhitespaceSplit"}})");
  std::mt19937 rng(5);
  std::string text;
  Ids expected;
  for (int i = 0; i < 3000; ++i) {
    std::string word;
    for (std::size_t n = 1 + rng() % (i % 50 == 0 ? 30 : 9); n > 0; --n) word += rng() % 2 == 0 ? 'a' : 'b';
    text += word + " ";
    for (std::int32_t id : encode(t, word)) expected.push_back(id);
  }
  EXPECT_EQ(encode(t, text), expected);
}

// Pieces that differ only in their length begin and end with the same bytes.
TEST(Tokenizer, RunsOfDifferentLengthAreDifferentPieces) {
  const Tokenizer t = tokenizer_of(R"({"model":{"vocab":{"a":0,"aa":1,"aaaa":2,"aaaaaaaa":3},
      "merges":["a a","aa aa","aaaa aaaa"]},"pre_tokenizer":{"type":"WhitespaceSplit"}})");
  for (std::size_t i = 1; i <= 18; ++i) {
    for (std::size_t j = 1; j <= 18; ++j) {
      Ids expected = encode(t, std::string(i, 'a'));
      for (std::int32_t id : encode(t, std::string(j, 'a'))) expected.push_back(id);
      EXPECT_EQ(encode(t, std::string(i, 'a') + " " + std::string(j, 'a')), expected) << i << " " << j;
    }
  }
}

// The 68 bytes that are not printable in Latin-1 are 0x00-0x20, 0x7F-0xA0 and 0xAD, in this order from U+0100 on.
TEST(ByteAlphabet, FollowsTheDefinition) {
  EXPECT_EQ(byte_to_alphabet(0x00), U'\u0100');
  EXPECT_EQ(byte_to_alphabet(' '), U'\u0120');
  EXPECT_EQ(byte_to_alphabet('!'), U'!');
  EXPECT_EQ(byte_to_alphabet('~'), U'~');
  EXPECT_EQ(byte_to_alphabet(0x7F), U'\u0121');
  EXPECT_EQ(byte_to_alphabet(0xA0), U'\u0142');
  EXPECT_EQ(byte_to_alphabet(0xA1), U'\u00A1');
  EXPECT_EQ(byte_to_alphabet(0xAC), U'\u00AC');
  EXPECT_EQ(byte_to_alphabet(0xAD), U'\u0143');
  EXPECT_EQ(byte_to_alphabet(0xAE), U'\u00AE');
  EXPECT_EQ(byte_to_alphabet(0xFF), U'\u00FF');
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(from_byte_alphabet("a\u0144"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("a "), std::nullopt);
}

TEST(Tokenizer, ManyThreadsMayUseOne) {
  const Tokenizer t = tokenizer_of(file());
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? " ab" : "b\u00E9";
  const Ids expected = encode(t, text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) threads.emplace_back([&] { ids = encode(t, text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, ErrorsNameFileAndField) {
  const auto error = [](ErrorCode code, const std::vector<std::string>& parts, const std::string& json,
                        const std::string& config = "null") {
    expect_error(code, parts, [&] { tokenizer_of(json, config); });
  };
  const ErrorCode bad = ErrorCode::bad_input;
  error(bad, {"tokenizer.json: model", "missing"}, "{}");
  error(bad, {"tokenizer.json", "array"}, "[]");
  error(ErrorCode::unsupported, {"tokenizer.json: version", "2.0"}, R"({"version":"2.0"})");
  error(ErrorCode::unsupported, {"tokenizer.json: post_processor", "Odd"}, file(R"(,"post_processor":{"type":"Odd"})"));
  error(ErrorCode::unsupported, {"tokenizer.json: normalizer", "Nmt"}, file(R"(,"normalizer":{"type":"Nmt"})"));
  error(bad, {"tokenizer.json: post_processor.cls[1]", "77"},
        file(R"(,"post_processor":{"type":"BertProcessing","sep":["b",1],"cls":["a",77]})"));
  error(bad, {"post_processor.single", "leaves the text out"},
        file(R"(,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})"));
  error(bad, {"post_processor.special_tokens.<q>", "missing"},
        file(R"(,"post_processor":{"type":"TemplateProcessing","special_tokens":{},
             "single":[{"SpecialToken":{"id":"<q>"}},{"Sequence":{"id":"A"}}]})"));
  error(bad, {"tokenizer_config.json: eos_token", "integer"}, file(), R"({"eos_token":3})");
  error(bad, {"tokenizer_config.json: add_bos_token", "string"}, file(), R"({"add_bos_token":"yes"})");
}

TEST(Tokenizer, LoadsAFolder) {
  const std::string folder = ::testing::TempDir() + "/tokenizer_test_" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  expect_error(ErrorCode::bad_input, {folder + "/tokenizer.json"}, [&] { Tokenizer::load(folder); });
  std::ofstream(folder + "/tokenizer.json") << file();
  EXPECT_EQ(Tokenizer::load(folder).bos_id(), std::nullopt);
  std::ofstream(folder + "/tokenizer_config.json") << R"({"bos_token":"<s>"})";
  EXPECT_EQ(Tokenizer::load(folder).bos_id(), 7);
  std::ofstream(folder + "/tokenizer.json") << file().substr(0, 100);
  expect_error(ErrorCode::bad_input, {folder + "/tokenizer.json", "byte"}, [&] { Tokenizer::load(folder); });
  std::filesystem::remove_all(folder);
}

TEST(Tokenizer, LoadsTheBundledModels) {
  for (const char* model : {"qwen3_moe", "deepseek_v3", "gpt_oss"}) {
    const Tokenizer t = Tokenizer::load(std::string(SLUICE_SOURCE_DIR) + "/models/" + model);
    EXPECT_EQ(t.vocab_size(), 760);
    EXPECT_EQ(t.eos_id(), 0);
    EXPECT_EQ(t.pad_id(), 1);
    EXPECT_EQ(t.decode(encode(t, "12 apples,\n\n\u4F60\U0001F600"), false), "12 apples,\n\n\u4F60\U0001F600");
    EXPECT_EQ(encode(t, "<|im_start|><|im_end|>"), (Ids{2, 3}));
  }
}

}  // namespace
}  // namespace sluice::text
