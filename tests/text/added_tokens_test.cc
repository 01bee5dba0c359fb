// Cutting by hand: parts are written as text, tokens as [id].
#include "text/added_tokens.h"

#include <random>

#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

struct Fixture {
  Vocabulary vocabulary{Json::parse(R"({"known":3})", "t"), "t: vocab"};
  AddedTokens tokens;
  explicit Fixture(const std::string& list, const std::string& normalizer = "null")
      : tokens(Json::parse(list, "t"), "t: added_tokens", Normalizer(Json::parse(normalizer, "t"), "t"), vocabulary) {}

  std::string cut(std::string_view text, bool normalized = false, bool special = true) const {
    std::string out;
    for (const AddedTokens::Part& p : tokens.split(text, normalized, special)) {
      out += "|";
      out += p.id >= 0 ? "[" + std::to_string(p.id) + "]" : std::string(text.substr(p.begin, p.end - p.begin));
    }
    return out;
  }
};

TEST(AddedTokens, LeftmostThenLongest) {
  const Fixture f(
      R"([{"id":10,"content":"ab","normalized":false},{"id":11,"content":"abcd","normalized":false},{"id":12,"content":"bcx","normalized":false},{"id":13,"content":"b","normalized":false}])");
  EXPECT_EQ(f.cut("zabcdz"), "|z|[11]|z");
  EXPECT_EQ(f.cut("abcx"), "|[10]|cx");  // "ab" begins before "bcx"
  EXPECT_EQ(f.cut("bcx"), "|[12]");
  EXPECT_EQ(f.cut("abab"), "|[10]|[10]");
  EXPECT_EQ(f.cut("xyz"), "|xyz");
  EXPECT_EQ(f.cut(""), "");
}

TEST(AddedTokens, SingleWord) {
  const Fixture f(R"([{"id":10,"content":"cat","normalized":false,"single_word":true}])");
  EXPECT_EQ(f.cut("cat"), "|[10]");
  EXPECT_EQ(f.cut("a cat, (cat)"), "|a |[10]|, (|[10]|)");
  EXPECT_EQ(f.cut("cats _cat 9cat caté \u00E9cat cat\u0301"), "|cats _cat 9cat caté \u00E9cat cat\u0301");
}

TEST(AddedTokens, StripsWhiteSpace) {
  const Fixture f(
      R"([{"id":10,"content":"<l>","normalized":false,"lstrip":true},{"id":11,"content":"<r>","normalized":false,"rstrip":true}])");
  EXPECT_EQ(f.cut("a \u3000\n<l> b"), "|a|[10]| b");
  EXPECT_EQ(f.cut("a <r> \t b"), "|a |[11]|b");
  EXPECT_EQ(f.cut("<r>  <l>"), "|[11]|[10]");  // the white space is taken once
  EXPECT_EQ(f.cut("  <l>"), "|[10]");
}

TEST(AddedTokens, LongRunsOfStrippingTokens) {
  const Fixture f(R"([{"id":10,"content":"\n","normalized":false,"rstrip":true,"lstrip":true}])");
  const std::string text(200000, '\n');  // each match walking the run again would take 4e10 steps
  const auto parts = f.tokens.split(text, false, true);
  EXPECT_EQ(parts.size(), text.size());
}

TEST(AddedTokens, NormalizedTokensAreFoundInNormalizedText) {
  const Fixture f(R"([{"id":10,"content":"ABC","normalized":true},{"id":11,"content":"<S>","special":true}])",
                  R"({"type":"Lowercase"})");
  EXPECT_EQ(f.cut("xABCx<S>", false), "|xABCx|[11]");
  EXPECT_EQ(f.cut("xabcx", true), "|x|[10]|x");
  EXPECT_EQ(f.tokens.find(10)->normalized_content, "abc");
  EXPECT_FALSE(f.tokens.find(11)->normalized);  // the default for special tokens
  EXPECT_EQ(f.tokens.find(12), nullptr);
}

TEST(AddedTokens, SpecialTokensCanBeOrdinaryText) {
  const Fixture f(
      R"([{"id":10,"content":"<s>","special":true},{"id":11,"content":"<t>","normalized":false},{"id":12,"content":"<","normalized":false}])");
  EXPECT_EQ(f.cut("<s><t>", false, true), "|[10]|[11]");
  EXPECT_EQ(f.cut("<s><t>", false, false), "|<s>|[11]");  // the place of the match is used up
}

TEST(AddedTokens, IdsMustAgreeWithTheVocabulary) {
  const ErrorCode bad = ErrorCode::bad_input;
  EXPECT_EQ(Fixture(R"([{"id":3,"content":"known","normalized":false}])").cut("known"), "|[3]");
  expect_error(bad, {"t: added_tokens[0].id", "\"known\"", "4", "3"},
               [] { Fixture(R"([{"id":4,"content":"known","normalized":false}])"); });
  expect_error(bad, {"t: added_tokens[1]", "\"b\"", "\"a\"", "7"}, [] {
    Fixture(R"([{"id":7,"content":"a","normalized":false},{"id":7,"content":"b","normalized":false}])");
  });
  expect_error(bad, {"t: added_tokens[0]", "-2"}, [] { Fixture(R"([{"id":-2,"content":"a","normalized":false}])"); });
  expect_error(bad, {"t: added_tokens[0]", "99999999999"},
               [] { Fixture(R"([{"id":99999999999,"content":"a","normalized":false}])"); });
  expect_error(bad, {"t: added_tokens[0].id", "missing"}, [] { Fixture(R"([{"content":"a"}])"); });
  expect_error(bad, {"t: added_tokens[0].content", "integer"}, [] { Fixture(R"([{"id":1,"content":2}])"); });
  expect_error(bad, {"t: added_tokens", "object"}, [] { Fixture("{}"); });
}

// Against a search that tries all strings at all places.
TEST(PrefixTree, AgreesWithTryingEverything) {
  std::mt19937 rng(11);
  const auto random_text = [&](std::size_t most) {
    std::string s;
    for (std::size_t n = 1 + rng() % most; n > 0; --n) s += static_cast<char>("abc\xF0"[rng() % 4]);
    return s;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> keys;
    PrefixTree tree;
    for (int i = 0; i < 12; ++i) {
      keys.push_back(random_text(5));
      tree.insert(keys.back(), i);
    }
    const std::string text = random_text(40);
    PrefixTree::Match m;
    for (std::size_t from = 0; from <= text.size();) {
      std::size_t begin = from;
      std::size_t length = 0;
      std::int32_t value = -1;
      for (; begin < text.size() && value < 0; ++begin) {
        for (std::size_t k = 0; k < keys.size(); ++k) {
          if (keys[k].size() <= length || text.compare(begin, keys[k].size(), keys[k]) != 0) continue;
          length = keys[k].size();
          value = static_cast<std::int32_t>(k);
        }
        if (value >= 0) break;
      }
      ASSERT_EQ(tree.find(text, from, m), value >= 0) << text;
      if (value < 0) break;
      ASSERT_EQ(m.begin, begin);
      ASSERT_EQ(m.end, begin + length);
      ASSERT_EQ(m.value, value);
      from = m.end;
    }
  }
}

}  // namespace
}  // namespace sluice::text
