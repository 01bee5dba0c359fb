#include "server/answer_text.h"

#include <gtest/gtest.h>

#include "text/byte_tokenizer.h"

namespace sluice::server {
namespace {

struct Seen {
  std::string thought, content, stop;
  bool operator==(const Seen&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Seen& s) {
  return out << "thought [" << s.thought << "] content [" << s.content << "] stop [" << s.stop << "]";
}

// What a client sees of an answer that comes token by token. No piece may hold half a character.
Seen seen(const text::Tokenizer& tokenizer, const std::string& answer, const TextRules& rules, bool opened = false) {
  const ThoughtTokens thoughts = ThoughtTokens::of(tokenizer);
  AnswerText text(tokenizer, thoughts, rules, opened);
  Seen all;
  const auto take = [&](const AnswerText::Piece& piece) {
    for (const std::string& part : {piece.thought, piece.content}) {
      EXPECT_TRUE(part.empty() || (static_cast<unsigned char>(part[0]) & 0xC0) != 0x80) << part;
    }
    all.thought += piece.thought;
    all.content += piece.content;
  };
  for (const std::int32_t id : tokenizer.encode(answer, false, true)) {
    take(text.push(id));
    if (text.stopped()) break;
  }
  take(text.finish());
  if (text.stopped()) all.stop = text.stop();
  return all;
}

const text::Tokenizer& thinking_tokenizer() {
  static const text::Tokenizer kTokenizer = text::byte_tokenizer({"<think>", "</think>"});
  return kTokenizer;
}

TEST(AnswerText, ThoughtsAreToldApartByTheirTokens) {
  TextRules rules;
  rules.separate_thoughts = true;
  const auto& t = thinking_tokenizer();
  EXPECT_EQ(seen(t, "<think>\nHm \xF0\x9F\x98\x80.\n</think>\n\nHi", rules),
            (Seen{"Hm \xF0\x9F\x98\x80.\n", "Hi", ""}));
  EXPECT_EQ(seen(t, "Hm.</think>Hi", rules, /*opened=*/true), (Seen{"Hm.", "Hi", ""}));
  EXPECT_EQ(seen(t, "no thoughts", rules), (Seen{"", "no thoughts", ""}));
  EXPECT_EQ(seen(t, "still thinking", rules, /*opened=*/true), (Seen{"still thinking", "", ""}));
  EXPECT_EQ(seen(t, "a<think>b</think>c", rules), (Seen{"b", "ac", ""}));
}

TEST(AnswerText, StopsCountFromTheLeastNumberOfTokensOn) {
  TextRules rules;
  rules.stops = {"ab"};
  const auto& t = thinking_tokenizer();
  rules.least_tokens = 4;  // a token is a byte
  EXPECT_EQ(seen(t, "abcabcab", rules), (Seen{"", "abcabc", "ab"}));
  rules.least_tokens = 3;
  EXPECT_EQ(seen(t, "abcabcab", rules), (Seen{"", "abc", "ab"}));
  rules.least_tokens = 9;
  EXPECT_EQ(seen(t, "abcabcab", rules), (Seen{"", "abcabcab", ""}));
}

TEST(AnswerText, ThoughtsStayWhereTheyAreUnlessAskedFor) {
  TextRules rules;
  rules.skip_special = false;
  EXPECT_EQ(seen(thinking_tokenizer(), "<think>b</think>c", rules, /*opened=*/true),
            (Seen{"", "<think>b</think>c", ""}));
}

TEST(AnswerText, StopStringsEndBothParts) {
  TextRules rules;
  rules.separate_thoughts = true;
  rules.stops = {"STOP", "\n\n"};
  const auto& t = thinking_tokenizer();
  EXPECT_EQ(seen(t, "<think>a STOP b</think>c", rules), (Seen{"a ", "", "STOP"}));
  EXPECT_EQ(seen(t, "<think>a STO</think>Phi STOP", rules), (Seen{"a STO", "Phi ", "STOP"}));
  EXPECT_EQ(seen(t, "x\n\ny", rules), (Seen{"", "x", "\n\n"}));
  EXPECT_EQ(seen(t, "x ST", rules), (Seen{"", "x ST", ""}));
  rules.keep_stop = true;
  EXPECT_EQ(seen(t, "x STOP y", rules), (Seen{"", "x STOP", "STOP"}));
}

TEST(AnswerText, HalfACharacterAtTheEndIsReplaced) {
  EXPECT_EQ(seen(thinking_tokenizer(), "a\xE4\xB8\xAD", {}), (Seen{"", "a\xE4\xB8\xAD", ""}));
  const ThoughtTokens thoughts = ThoughtTokens::of(thinking_tokenizer());
  AnswerText text(thinking_tokenizer(), thoughts, {}, false);
  const auto ids = thinking_tokenizer().encode("\xE4\xB8\xAD", false, true);
  ASSERT_GT(ids.size(), 1u);
  EXPECT_TRUE(text.push(ids[0]).empty());
  EXPECT_EQ(text.finish().content, "\xEF\xBF\xBD");
}

TEST(AnswerText, PromptsThatOpenAThought) {
  const auto& t = thinking_tokenizer();
  const ThoughtTokens thoughts = ThoughtTokens::of(t);
  const auto opened = [&](const std::string& prompt) { return thoughts.opened_by(t.encode(prompt, false, true)); };
  EXPECT_TRUE(opened("question<think>\n"));
  EXPECT_FALSE(opened("question<think>\n</think>\n"));
  EXPECT_FALSE(opened("question"));
  EXPECT_TRUE(opened("a<think>b</think>c<think>"));
  // A tokenizer without the tokens knows no thoughts, whatever the text says.
  const text::Tokenizer plain = text::byte_tokenizer({});
  const ThoughtTokens none = ThoughtTokens::of(plain);
  EXPECT_FALSE(none.opened_by(plain.encode("<think>", false, true)));
  TextRules rules;
  rules.separate_thoughts = true;
  EXPECT_EQ(seen(plain, "<think>a</think>b", rules), (Seen{"", "<think>a</think>b", ""}));
}

TEST(AnswerText, ChannelsOfHarmony) {
  const text::Tokenizer t = text::byte_tokenizer(text::harmony_control_tokens());
  TextRules rules;
  rules.harmony = rules.separate_thoughts = true;
  rules.stops = {"STOP"};
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  EXPECT_EQ(seen(t, thought + "<|channel|>final<|message|>Hi", rules), (Seen{"Hm.", "Hi", ""}));
  EXPECT_EQ(seen(t, thought + "<|channel|>final<|message|>Hi STOP!", rules), (Seen{"Hm.", "Hi ", "STOP"}));
  EXPECT_EQ(seen(t, "<|channel|>analysis<|message|>still", rules), (Seen{"still", "", ""}));
}

}  // namespace
}  // namespace sluice::server
