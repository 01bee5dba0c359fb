// Pieces by hand from the rules of each step; test_tokenizer_oracle.py compares with the `tokenizers` package.
#include "text/pre_tokenizer.h"

#include "text/normalizer.h"
#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(const std::string& json, std::string_view text, bool starts_text = true) {
  const PreTokenizer p(Json::parse(json, "t"), "t: pre_tokenizer");
  PreTokenizerScratch scratch;
  Pieces out;
  p.run({text, starts_text}, scratch, [&](PreTokenizer::Piece piece) { out.emplace_back(piece.text); });
  return out;
}

std::string split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return R"({"type":"Split","pattern":)" + pattern + R"(,"behavior":")" + behavior + R"(","invert":)" +
         (invert ? "true}" : "false}");
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string dash = R"({"String":"-"})";
  EXPECT_EQ(pieces(split(dash, "Isolated"), "a-b--c"), (Pieces{"a", "-", "b", "-", "-", "c"}));
  EXPECT_EQ(pieces(split(dash, "Removed"), "a-b--c"), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(pieces(split(dash, "MergedWithPrevious"), "-a-b--c"), (Pieces{"-", "a-", "b-", "-", "c"}));
  EXPECT_EQ(pieces(split(dash, "MergedWithNext"), "a-b--c-"), (Pieces{"a", "-b", "-", "-c", "-"}));
  EXPECT_EQ(pieces(split(dash, "Contiguous"), "a-b--c"), (Pieces{"a", "-", "b", "--", "c"}));
}

TEST(PreTokenizer, InvertSwapsMatchesAndTheRest) {
  const std::string letters = R"({"Regex":"[a-z]+"})";
  EXPECT_EQ(pieces(split(letters, "Removed", true), "ab12cd"), (Pieces{"ab", "cd"}));
  EXPECT_EQ(pieces(split(letters, "MergedWithNext", true), "12ab34cd"), (Pieces{"12ab", "34cd"}));
  EXPECT_EQ(pieces(split(letters, "Isolated", true), "ab12"), (Pieces{"ab", "12"}));
}

TEST(PreTokenizer, EmptyMatches) {
  EXPECT_EQ(pieces(split(R"({"Regex":"x*"})", "Isolated"), "axxb"), (Pieces{"a", "xx", "b"}));
  EXPECT_EQ(pieces(split(R"x({"Regex":"(?=b)"})x", "Removed"), "abcb"), (Pieces{"a", "bc", "b"}));
  EXPECT_EQ(pieces(split(R"({"String":""})", "Isolated"), "a\u4F60"), (Pieces{"a", "\u4F60"}));
  EXPECT_EQ(pieces(split(R"({"String":"a"})", "Isolated"), ""), Pieces{});
}

TEST(PreTokenizer, SequenceAppliesEachStepToThePiecesOfTheLast) {
  const std::string json = R"({"type":"Sequence","pretokenizers":[)" + split(R"({"String":" "})", "Removed") + "," +
                           split(R"({"Regex":"^."})", "Isolated") + "]}";
  EXPECT_EQ(pieces(json, "ab cd"), (Pieces{"a", "b", "c", "d"}));  // '^' is the start of each piece
}

TEST(PreTokenizer, ByteLevel) {
  const auto level = [](bool space, bool regex) {
    return std::string(R"({"type":"ByteLevel","trim_offsets":true,"add_prefix_space":)") + (space ? "true" : "false") +
           R"(,"use_regex":)" + (regex ? "true}" : "false}");
  };
  EXPECT_EQ(pieces(level(false, true), "I'll go,  12a"), (Pieces{"I", "'ll", " go", ",", " ", " 12", "a"}));
  EXPECT_EQ(pieces(level(true, true), "Hi \u00E9"), (Pieces{" Hi", " \u00E9"}));
  EXPECT_EQ(pieces(level(true, false), " x"), (Pieces{" x"}));
  // Not the last step: what follows sees the characters that stand for the bytes.
  EXPECT_EQ(pieces(R"({"type":"Sequence","pretokenizers":[)" + level(false, false) + "," +
                       split(R"({"String":"Ġ"})", "MergedWithNext") + "]}",
                   "a \u00E9"),
            (Pieces{"a", "ĠÃ©"}));
}

TEST(PreTokenizer, CharacterClasses) {
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":true})", "a12\u0663b"),
            (Pieces{"a", "1", "2", "\u0663", "b"}));
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":false})", "a12b"), (Pieces{"a", "12", "b"}));
  EXPECT_EQ(pieces(R"({"type":"Whitespace"})", " a_1 b-+\u3000c "), (Pieces{"a_1", "b", "-+", "c"}));
  EXPECT_EQ(pieces(R"({"type":"WhitespaceSplit"})", " a-b \tc\n"), (Pieces{"a-b", "c"}));
  EXPECT_EQ(pieces(R"({"type":"Punctuation"})", "a,b!"), (Pieces{"a", ",", "b", "!"}));
  EXPECT_EQ(pieces(R"({"type":"Punctuation","behavior":"Contiguous"})", "a,!b"), (Pieces{"a", ",!", "b"}));
  EXPECT_EQ(pieces(R"({"type":"CharDelimiterSplit","delimiter":"\u00E9"})", "a\u00E9b"), (Pieces{"a", "b"}));
}

TEST(PreTokenizer, Metaspace) {
  const auto meta = [](const std::string& rest) { return R"({"type":"Metaspace","replacement":"_",)" + rest + "}"; };
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"always")"), "a b  c"), (Pieces{"_a", "_b", "_", "_c"}));
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"always","split":false)"), "a b"), (Pieces{"_a_b"}));
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"first")"), "a", true), (Pieces{"_a"}));
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"first")"), "a", false), (Pieces{"a"}));
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"never")"), "a b"), (Pieces{"a", "_b"}));
  EXPECT_EQ(pieces(meta(R"("prepend_scheme":"always")"), " a"), (Pieces{"_a"}));
}

TEST(PreTokenizer, RefusesByName) {
  expect_error(ErrorCode::unsupported, {"t: pre_tokenizer", "BertPreTokenizer", "Split"},
               [] { pieces(R"({"type":"BertPreTokenizer"})", ""); });
  expect_error(ErrorCode::unsupported, {"t: pre_tokenizer.pretokenizers[0]", "UnicodeScripts"},
               [] { pieces(R"({"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"}]})", ""); });
  expect_error(ErrorCode::bad_input, {"t: pre_tokenizer.type", "missing"}, [] { pieces("{}", ""); });
  expect_error(ErrorCode::bad_input, {"t: pre_tokenizer.behavior", "Sideways"},
               [] { pieces(split(R"({"String":"a"})", "Sideways"), ""); });
  expect_error(ErrorCode::bad_input, {"t: pre_tokenizer.pattern"}, [] { pieces(split("{}", "Removed"), ""); });
  expect_error(ErrorCode::bad_input, {"t: pre_tokenizer.replacement"},
               [] { pieces(R"({"type":"Metaspace","replacement":"ab"})", ""); });
  std::string many;
  for (int i = 0; i < 65; ++i) many += std::string(i > 0 ? "," : "") + R"({"type":"Whitespace"})";
  expect_error(ErrorCode::bad_input, {"too many steps"},
               [&] { pieces(R"({"type":"Sequence","pretokenizers":[)" + many + "]}", ""); });
}

std::string normalized(const std::string& json, std::string_view text) {
  RegexScratch scratch;
  return Normalizer(Json::parse(json, "t"), "t: normalizer").apply(text, scratch);
}

TEST(Normalizer, Steps) {
  EXPECT_EQ(normalized("null", "e\u0301"), "e\u0301");
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "e\u0301"), "\u00E9");
  EXPECT_EQ(normalized(R"({"type":"NFKC"})", "\uFB01"), "fi");
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "\u00C9A"), "\u00E9a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":" "},"content":"_"})", "a  b"), "a__b");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":"\\s+"},"content":""})", "a  b"), "ab");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":false})", "\u3000 a "), "a ");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", " \n "), "");
  EXPECT_EQ(normalized(R"({"type":"ByteLevel"})", " \u00E9"), "ĠÃ©");
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"E"},{"type":"Lowercase"}]})",
                       "\u0301"),
            "e\u0301");
  expect_error(ErrorCode::unsupported, {"t: normalizer", "BertNormalizer", "NFC"},
               [] { normalized(R"({"type":"BertNormalizer"})", ""); });
}

}  // namespace
}  // namespace sluice::text
