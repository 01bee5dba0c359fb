// Expected texts by hand from the rules of each step.
#include "text/decoder.h"

#include "text/stream_decoder.h"
#include "text/unicode.h"
#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

using Parts = std::vector<std::string>;

// What each token gives, and what the end gives.
Parts stream(const std::string& json, const Parts& tokens) {
  const Decoder decoder(Json::parse(json, "t"), "t: decoder");
  DecoderRun run(decoder);
  Parts out;
  for (const std::string& t : tokens) out.push_back(run.push(t));
  out.push_back(run.finish());
  return out;
}

std::string sequence(const std::string& steps) { return R"({"type":"Sequence","decoders":[)" + steps + "]}"; }

const char* const kByteLevel = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true})";

TEST(Decoder, WithoutOneTokensAreJoinedWithSpaces) {
  EXPECT_EQ(stream("null", {"a", "b"}), (Parts{"a", " b", ""}));
  EXPECT_EQ(stream(sequence(""), {"a", "b"}), (Parts{"a", "b", ""}));
}

TEST(Decoder, ByteLevelHoldsBackHalfACharacter) {
  // U+1F600 is F0 9F 98 80; its bytes are spelled U+00F0, U+0141, U+013A, U+0122.
  EXPECT_EQ(stream(kByteLevel, {"aĠ", "ð", "Łĺ", "Ģb"}), (Parts{"a ", "", "", "\U0001F600b", ""}));
  EXPECT_EQ(stream(kByteLevel, {"ðŁ", "a"}), (Parts{"", "\uFFFDa", ""}));
  EXPECT_EQ(stream(kByteLevel, {"a", "ðŁ"}), (Parts{"a", "", "\uFFFD"}));
}

TEST(Decoder, ByteLevelTokensOutsideTheAlphabetStandForThemselves) {
  EXPECT_EQ(stream(kByteLevel, {"\u4F60 \u00E9", "\u00E9"}), (Parts{"\u4F60 \u00E9", "", "\uFFFD"}));
}

TEST(Decoder, ByteFallbackDecidesAtTheEndOfARun) {
  const char* json = R"({"type":"ByteFallback"})";
  EXPECT_EQ(stream(json, {"<0xE4>", "<0xBD>", "<0xA0>", "x"}), (Parts{"", "", "", "\u4F60x", ""}));
  EXPECT_EQ(stream(json, {"<0xE4>", "<0xbd>", "x"}), (Parts{"", "", "\uFFFD\uFFFDx", ""}));
  EXPECT_EQ(stream(json, {"<0x41>", "<0xFF>"}), (Parts{"", "", "\uFFFD\uFFFD"}));  // all of the run is lost
  EXPECT_EQ(stream(json, {"<0x4>", "<0xGG>", "<0x411>"}), (Parts{"<0x4>", "<0xGG>", "<0x411>", ""}));
}

TEST(Decoder, LlamaStyle) {
  const std::string json = sequence(
      R"({"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
         {"type":"Strip","content":" ","start":1,"stop":0})");
  EXPECT_EQ(stream(json, {"_a", "__b", "<0xC3>", "<0xA9>", "_"}), (Parts{"a", "  b", "", "", "\u00E9 ", ""}));
  EXPECT_EQ(stream(json, {"_", "_a"}), (Parts{"", " a", ""}));
  EXPECT_EQ(stream(json, {"a", "_b"}), (Parts{"a", " b", ""}));  // only the front of the whole text is stripped
}

TEST(Decoder, StripTakesFromBothEnds) {
  const auto strip = [](const std::string& n) { return R"({"type":"Strip","content":"x",)" + n + "}"; };
  EXPECT_EQ(stream(strip(R"("start":2,"stop":0)"), {"xxxa", "xb"}), (Parts{"xa", "b", ""}));
  EXPECT_EQ(stream(strip(R"("start":0,"stop":1)"), {"axx", "x", ""}), (Parts{"ax", "", "", ""}));
  EXPECT_EQ(stream(strip(R"("start":1,"stop":2)"), {"xx"}), (Parts{"", ""}));
  // Behind a Fuse the end of the text is not known before the end.
  EXPECT_EQ(stream(sequence(R"({"type":"Fuse"},)" + strip(R"("start":1,"stop":1)")), {"xa", "bx"}),
            (Parts{"", "", "ab"}));
}

TEST(Decoder, MetaspaceDropsTheFirstMark) {
  const char* json = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always"})";
  EXPECT_EQ(stream(json, {"_a_", "_b"}), (Parts{"a", " b", ""}));
  EXPECT_EQ(stream(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", {"_a"}), (Parts{" a", ""}));
}

TEST(Decoder, RefusesByName) {
  expect_error(ErrorCode::unsupported, {"t: decoder", "WordPiece", "ByteLevel"},
               [] { stream(R"({"type":"WordPiece","prefix":"##","cleanup":true})", {}); });
  expect_error(ErrorCode::bad_input, {"t: decoder.decoders[0].content"},
               [] { stream(sequence(R"({"type":"Strip","content":"ab","start":0,"stop":0})"), {}); });
  expect_error(ErrorCode::bad_input, {"t: decoder.stop", "-1"},
               [] { stream(R"({"type":"Strip","content":"a","start":0,"stop":-1})", {}); });
}

TEST(StreamDecoder, SkipsSpecialTokensAndUnknownIds) {
  const Tokenizer t = tokenizer_of(R"({"model":{"vocab":{"a":0,"Ã":1,"©":2},"merges":[]},
      "decoder":{"type":"ByteLevel"},"added_tokens":[{"id":5,"content":"<s>","special":true},{"id":6,"content":"t"}]})");
  const Ids ids = {5, 0, 1, 5, 2, 99, 3, -1, 6, 1};
  EXPECT_EQ(t.decode(ids, true), "a\u00E9t\uFFFD");
  EXPECT_EQ(t.decode(ids, false), "<s>a\uFFFD<s>\uFFFDt\uFFFD");  // the token in between breaks the character
  StreamDecoder stream(t, true);
  Parts parts;
  for (std::int32_t id : ids) parts.push_back(stream.push(id));
  parts.push_back(stream.flush());
  EXPECT_EQ(parts, (Parts{"", "a", "", "", "\u00E9", "", "", "", "t", "", "\uFFFD"}));
}

}  // namespace
}  // namespace sluice::text
