// Expected ids follow from the rule by hand: the pair of the lowest rank first, of equal ones the leftmost.
#include "text/bpe.h"

#include <map>
#include <random>
#include <utility>

#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

Bpe bpe_of(const std::string& model, bool byte_pieces = false) {
  return Bpe(Json::parse(model, "t"), "t: model", byte_pieces);
}

Ids ids_of(const Bpe& bpe, std::string_view piece) {
  BpeScratch scratch;
  Ids out;
  bpe.encode(piece, scratch, out);
  return out;
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Bpe bpe = bpe_of(R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"bc":3,"ab":4,"aa":5,"abc":6},
                            "merges":[["b","c"],["a","b"],["a","a"],["a","bc"]]})");
  EXPECT_EQ(ids_of(bpe, "abc"), (Ids{6}));  // bc has rank 0; then a + bc
  EXPECT_EQ(ids_of(bpe, "abab"), (Ids{4, 4}));
  EXPECT_EQ(ids_of(bpe, "aaa"), (Ids{5, 0}));   // the left pair
  EXPECT_EQ(ids_of(bpe, "aabc"), (Ids{5, 3}));  // bc, then aa (rank 2) before a + bc (rank 3)
  EXPECT_EQ(ids_of(bpe, ""), Ids{});
}

TEST(Bpe, MergesAsStringsAndAsPairsAreTheSame) {
  const std::string vocab = R"("vocab":{"x":0,"y":1,"xy":2,"xyx":3})";
  const Bpe pairs = bpe_of("{" + vocab + R"(,"merges":[["x","y"],["xy","x"]]})");
  const Bpe lines = bpe_of("{" + vocab + R"(,"merges":["#version: 0.2","x y","xy x"]})");
  for (const char* text : {"x", "xy", "xyx", "xyxy", "yxyx"}) EXPECT_EQ(ids_of(pairs, text), ids_of(lines, text));
  EXPECT_EQ(ids_of(lines, "xyxy"), (Ids{2, 2}));
  EXPECT_EQ(ids_of(lines, "xyxx"), (Ids{3, 0}));
}

TEST(Bpe, ALaterRuleForAPairReplacesTheEarlier) {
  const Bpe bpe = bpe_of(R"({"vocab":{"a":0,"b":1,"ab":2,"bb":3},"merges":["a b","b b","a b"]})");
  EXPECT_EQ(ids_of(bpe, "abb"), (Ids{0, 3}));  // "a b" now has rank 2, after "b b"
}

TEST(Bpe, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  const std::string rest = R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":[["a","b"]]})";
  EXPECT_EQ(ids_of(bpe_of(R"({"ignore_merges":true,)" + rest), "abc"), (Ids{4}));
  EXPECT_EQ(ids_of(bpe_of(R"({"ignore_merges":true,)" + rest), "abca"), (Ids{3, 2, 0}));
  EXPECT_EQ(ids_of(bpe_of(R"({"ignore_merges":false,)" + rest), "abc"), (Ids{3, 2}));
}

TEST(Bpe, BytePiecesUseTheAlphabet) {
  // U+0120 stands for the space, U+00C3 and U+00A9 for the two bytes of an e with acute accent.
  const std::string rest = R"("vocab":{"Ġ":0,"Ã":1,"©":2,"Ã©":3,"ĠÃ©":4},"merges":["Ã ©"]})";
  EXPECT_EQ(ids_of(bpe_of("{" + rest, true), " \xC3\xA9"), (Ids{0, 3}));
  EXPECT_EQ(ids_of(bpe_of(R"({"ignore_merges":true,)" + rest, true), " \xC3\xA9"), (Ids{4}));
  EXPECT_EQ(ids_of(bpe_of("{" + rest, true), "x \xA9z"), (Ids{0, 2}));  // unknown bytes are dropped
}

TEST(Bpe, UnknownCharacters) {
  const std::string rest = R"("unk_token":"?","vocab":{"?":0,"a":1,"b":2},"merges":[]})";
  const Bpe fused = bpe_of(R"({"fuse_unk":true,)" + rest);
  const Bpe single = bpe_of(R"({"fuse_unk":false,)" + rest);
  EXPECT_EQ(ids_of(fused, "axyzb\u4F60x"), (Ids{1, 0, 2, 0}));
  EXPECT_EQ(ids_of(single, "axyzb\u4F60x"), (Ids{1, 0, 0, 0, 2, 0, 0}));
  const Bpe none = bpe_of(R"({"vocab":{"a":1},"merges":[]})");
  EXPECT_EQ(ids_of(none, "xay"), (Ids{1}));
  const Bpe lost = bpe_of(R"({"unk_token":"?","vocab":{"a":1},"merges":[]})");
  EXPECT_EQ(ids_of(lost, "aa"), (Ids{1, 1}));
  expect_error(ErrorCode::bad_input, {"t: model.unk_token", "\"?\"", "\"x\""}, [&] { ids_of(lost, "ax"); });
}

TEST(Bpe, FallbackToBytes) {
  const std::string rest = R"("unk_token":"?","fuse_unk":true,
      "vocab":{"?":0,"a":1,"<0xC3>":2,"<0xA9>":3,"<0xE4>":4},"merges":[]})";
  const Bpe bpe = bpe_of(R"({"byte_fallback":true,)" + rest);
  EXPECT_EQ(ids_of(bpe, "a\u00E9a"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(ids_of(bpe, "a\u4F60"), (Ids{1, 0}));  // two of its three bytes are not there
  EXPECT_EQ(ids_of(bpe, "\u4F60\u00E9a"),
            (Ids{2, 3, 0, 1}));  // the bytes pass the waiting unknown, as in the reference
  EXPECT_EQ(ids_of(bpe_of("{" + rest), "\u00E9"), (Ids{0}));
}

// A slow obvious reference: looks for the best pair again and again.
Ids naive(const std::map<std::pair<int, int>, std::pair<int, int>>& rules, Ids ids) {
  while (true) {
    int best_rank = -1;
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule == rules.end() || (best_rank >= 0 && rule->second.first >= best_rank)) continue;
      best_rank = rule->second.first;
      best = i;
    }
    if (best_rank < 0) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Random models and pieces of all lengths around the border between the two ways of merging.
TEST(Bpe, ShortAndLongPiecesAgreeWithTheNaiveRule) {
  std::mt19937 rng(7);
  const auto below = [&](std::size_t n) { return rng() % n; };
  for (int model = 0; model < 20; ++model) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::string, int> id = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::map<std::pair<int, int>, std::pair<int, int>> rules;
    std::string merges;
    for (int rank = 0; rank < 30;) {
      const std::string left = tokens[below(tokens.size())];
      const std::string right = tokens[below(tokens.size())];
      if (left.size() + right.size() > 6 || rules.count({id[left], id[right]}) > 0) continue;
      if (id.emplace(left + right, static_cast<int>(tokens.size())).second) tokens.push_back(left + right);
      rules[{id[left], id[right]}] = {rank++, id[left + right]};
      merges += (merges.empty() ? "" : ",") + ("\"" + left + " " + right + "\"");
    }
    std::string vocab;
    for (const auto& [token, i] : id) vocab += (vocab.empty() ? "\"" : ",\"") + token + "\":" + std::to_string(i);
    const Bpe bpe = bpe_of("{\"vocab\":{" + vocab + "},\"merges\":[" + merges + "]}");
    for (std::size_t length : {1u, 2u, 3u, 17u, 126u, 127u, 128u, 129u, 130u, 300u}) {
      std::string text;
      Ids ids;
      while (text.size() < length) {
        ids.push_back(static_cast<std::int32_t>(below(3)));
        text += static_cast<char>('a' + ids.back());
      }
      ASSERT_EQ(ids_of(bpe, text), naive(rules, ids)) << text;
    }
  }
}

// A quadratic algorithm would need hours here.
TEST(Bpe, AMegabyteOfOneCharacter) {
  const Bpe bpe = bpe_of(R"({"vocab":{"a":0,"aa":1,"aaaa":2,"aaaaaaaa":3},"merges":["a a","aa aa","aaaa aaaa"]})");
  EXPECT_EQ(ids_of(bpe, std::string((1 << 20) + 5, 'a')), [] {
    Ids expected(1 << 17, 3);
    expected.push_back(2);
    expected.push_back(0);
    return expected;
  }());
}

TEST(Bpe, RefusesWhatItCannotDo) {
  const std::string rest = R"("vocab":{"a":0},"merges":[]})";
  expect_error(ErrorCode::unsupported, {"t: model", "Unigram", "BPE"}, [&] { bpe_of(R"({"type":"Unigram",)" + rest); });
  expect_error(ErrorCode::unsupported, {"t: model.dropout"}, [&] { bpe_of(R"({"dropout":0.1,)" + rest); });
  expect_error(ErrorCode::unsupported, {"continuing_subword_prefix", "##"},
               [&] { bpe_of(R"({"continuing_subword_prefix":"##",)" + rest); });
  expect_error(ErrorCode::unsupported, {"end_of_word_suffix"},
               [&] { bpe_of(R"({"end_of_word_suffix":"</w>",)" + rest); });
  EXPECT_EQ(ids_of(bpe_of(R"({"dropout":0.0,"end_of_word_suffix":"",)" + rest), "a"), (Ids{0}));
}

TEST(Bpe, RefusesInconsistentFiles) {
  const auto model = [](const std::string& vocab, const std::string& merges) {
    return [=] { bpe_of("{\"vocab\":" + vocab + ",\"merges\":" + merges + "}"); };
  };
  const ErrorCode bad = ErrorCode::bad_input;
  expect_error(bad, {"t: model.vocab", "\"b\"", "\"a\"", "7"}, model(R"({"a":7,"b":7})", "[]"));
  expect_error(bad, {"t: model.vocab", "\"a\"", "-1"}, model(R"({"a":-1})", "[]"));
  expect_error(bad, {"t: model.vocab", "\"a\"", "4000000000"}, model(R"({"a":4000000000})", "[]"));
  expect_error(bad, {"t: model.vocab", "\"a\"", "1048577"}, model(R"({"a":1048577})", "[]"));
  expect_error(bad, {"t: model.vocab", "\"a\"", "1.5"}, model(R"({"a":1.5})", "[]"));
  expect_error(bad, {"t: model.vocab", "\"a\"", "null"}, model(R"({"a":null})", "[]"));
  expect_error(bad, {"t: model.vocab", "array"}, model("[]", "[]"));
  expect_error(bad, {"t: model.merges", "rule 0", "\"ab\""}, model(R"({"a":0,"b":1})", R"(["a b"])"));
  expect_error(bad, {"t: model.merges", "rule 1", "\"c\""}, model(R"({"a":0,"b":1,"ab":2})", R"(["a b",["a","c"]])"));
  expect_error(bad, {"t: model.merges[0]", "a b c"}, model(R"({"a":0})", R"(["a b c"])"));
  expect_error(bad, {"t: model.merges[0]"}, model(R"({"a":0})", R"(["a"])"));
  expect_error(bad, {"t: model.merges[0]"}, model(R"({"a":0})", R"([["a","a","a"]])"));
  expect_error(bad, {"t: model.merges[0]", "integer"}, model(R"({"a":0})", R"([["a",1]])"));
  expect_error(bad, {"t: model.merges", "object"}, model(R"({"a":0})", "{}"));
  expect_error(bad, {"t: model.merges", "missing"}, [] { bpe_of(R"({"vocab":{}})"); });
  expect_error(bad, {"t: model.vocab", "missing"}, [] { bpe_of(R"({"merges":[]})"); });
}

TEST(Bpe, HolesInTheIdsAreAllowed) {
  const Bpe bpe = bpe_of(R"({"vocab":{"a":0,"b":500000,"ab":1000000},"merges":["a b"]})");
  EXPECT_EQ(ids_of(bpe, "abb"), (Ids{1000000, 500000}));
  EXPECT_EQ(bpe.vocabulary().size(), 1000001);
  EXPECT_FALSE(bpe.vocabulary().contains(1));
}

}  // namespace
}  // namespace sluice::text
