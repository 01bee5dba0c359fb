// What the patterns match is defined by Oniguruma; test_pattern_oracle.py compares with it. Here: the rules by example,
// what is refused, and the limits.
#include "text/regex.h"

#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

// All matches of a pattern, with '|' between them.
std::string matches(const std::string& pattern, std::string_view text) {
  const Regex regex(pattern, "t: pattern");
  RegexScratch scratch;
  std::string out;
  TextSpan m;
  for (std::size_t from = 0; regex.search(scratch, text, from, m) && m.end > m.begin; from = m.end) {
    out += (out.empty() ? "" : "|") + std::string(text.substr(m.begin, m.end - m.begin));
  }
  return out;
}

TEST(Regex, IntervalsFollowedByPlusRepeat) {
  EXPECT_EQ(matches(R"(\d{1,3})", "1234567"), "123|456|7");
  EXPECT_EQ(matches(R"(\d{1,3}+)", "1234567"), "1234567");
  EXPECT_EQ(matches("a{,2}b", "aaab ab b"), "aab|ab|b");
  EXPECT_EQ(matches("(?:ab){2}?c", "ababc c"), "ababc|c");  // '?' after a fixed count: or none
  EXPECT_EQ(matches("a{x", "a{x"), "a{x");
  EXPECT_EQ(matches("a{1,2}{2}", "aaaaa"), "aaaa");
}

TEST(Regex, WhiteSpaceAndWordsAreThoseOfUnicode) {
  EXPECT_EQ(matches(R"(\s)", "a\u180Eb\u0085c\u2003d"), "\u0085|\u2003");
  EXPECT_EQ(matches(R"([^\S\n]+)", "a \t\nb\u00A0"), " \t|\u00A0");
  EXPECT_EQ(matches(R"(\w+)", "e\u0301_\u0663 -"), "e\u0301_\u0663");
  EXPECT_EQ(matches(R"(\h+)", "xbeefz09"), "beef|09");
  EXPECT_EQ(matches(R"(\bo\w*)", "on two of"), "on|of");
}

TEST(Regex, NestedClassesAndIntersections) {
  EXPECT_EQ(matches(R"([\p{L}&&[^\p{Han}]]+)", "ab\u6F22cd"), "ab|cd");
  EXPECT_EQ(matches(R"([^\p{L}&&[^\p{Han}]]+)", "ab\u6F22cd1"), "\u6F22|1");
  EXPECT_EQ(matches(R"([[a-c][x-z]_]+)", "abxdy_"), "abx|y_");
  EXPECT_EQ(matches(R"([]a]+)", "a]b"), "a]");
  EXPECT_EQ(matches(R"([a\-z\]]+)", "a-z]b"), "a-z]");
  EXPECT_EQ(matches(R"([a-]+)", "a-b"), "a-");
}

TEST(Regex, LineEndsAndGroups) {
  EXPECT_EQ(matches("^.", "ab\ncd\n"), "a|c");
  EXPECT_EQ(matches(".$", "ab\ncd\n"), "b|d");
  EXPECT_EQ(matches(".+", "a\rb\nc"), "a\rb|c");
  EXPECT_EQ(matches("(?i:'s|'LL)", "it'S we'll 's"), "'S|'ll|'s");
  EXPECT_EQ(matches("(?i)ab|c", "AB C"), "AB|C");
  EXPECT_EQ(matches("(?<=a)b(?!c)", "abc abd b"), "b");
  EXPECT_EQ(matches("(a)(b)?+", "aba"), "ab|a");
  EXPECT_EQ(matches(R"(\x41|\x{4e00}|\u4e01|\.)", "A\u4E00\u4E01."), "A|\u4E00|\u4E01|.");
}

TEST(Regex, RefusesWhatWouldMatchSomethingElse) {
  for (const char* pattern : {R"(\R)",         R"(\X)",       R"(\K)",      R"((a)\1)",    R"(\k<n>)",
                              R"(\G)",         R"(\cA)",      R"(\101)",    R"(\xe9)",     R"(\N)",
                              "(?m:.)",        "(?x: a)",     "(?<name>a)", "(?#comment)", "(*FAIL)",
                              "(?|a)",         "(?R)",        "(?(1)a)",    "a(?i)b|c",    R"(\p{Script=Han})",
                              R"(\p{NoSuch})", "[[:punct:]]", "(?i:stop)",  "(?i:\u00DF)", R"((?i:[\p{Lu}]))",
                              "[a-[b]]",       R"([a-\d])"}) {
    expect_error(ErrorCode::unsupported, {"t: pattern", pattern}, [&] { Regex(pattern, "t: pattern"); });
  }
}

TEST(Regex, RefusesWhatIsNoPattern) {
  for (const char* pattern : {"(", ")", "[", "[a", "[]", "*a", "a|*", "(?:+)", "[z-a]", R"(\p{L)", R"(\p)", "\\",
                              R"(\x{110000})", R"(\x{d800})", R"(\x{41)", "{2}", "(?<=a*)b", "\xFF", "[^"}) {
    expect_error(ErrorCode::bad_input, {"t: pattern"}, [&] { Regex(pattern, "t: pattern"); });
  }
  expect_error(ErrorCode::bad_input, {"t: pattern", "20000"}, [] { Regex(std::string(20000, 'a'), "t: pattern"); });
  const std::string deep = std::string(101, '(') + "a" + std::string(101, ')');
  expect_error(ErrorCode::bad_input, {"t: pattern", "100"}, [&] { Regex(deep, "t: pattern"); });
}

// The interpreter must give what compiled code gives.
TEST(Regex, WithoutJitTheSame) {
  const std::string text =
      "It's 1234 caf\u00E9s,\n\n  x\u6F22\u5B57 \U0001F600!? 'LL" + std::string(3000, 'a') + std::string(3000, ' ');
  RegexScratch scratch;
  for (const char* pattern :
       {R"((?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+)",
        R"([\p{L}&&[^\p{Han}]]+|\s++$)", R"((?<=\d)\b.)"}) {
    const Regex compiled(pattern, "t");
    const Regex interpreted(pattern, "t", false);
    EXPECT_FALSE(interpreted.jit());
    TextSpan a;
    TextSpan b;
    int found = 0;
    for (std::size_t from = 0; compiled.search(scratch, text, from, a); from = a.end) {
      ASSERT_TRUE(interpreted.search(scratch, text, from, b));
      ASSERT_EQ(a.begin, b.begin) << pattern;
      ASSERT_EQ(a.end, b.end) << pattern;
      ++found;
    }
    EXPECT_FALSE(interpreted.search(scratch, text, b.end, b));
    EXPECT_GT(found, 0) << pattern;
  }
}

// Nested repeats that fail take exponential time; the limit ends them.
TEST(Regex, PathologicalSearchIsAnError) {
  const Regex regex("(?:a|a)*b|(?:a|aa)+$(?<=c)", "t: pattern");
  RegexScratch scratch;
  TextSpan m;
  const std::string text(60, 'a');
  expect_error(ErrorCode::bad_input, {"t: pattern", "60 bytes"}, [&] { regex.search(scratch, text, 0, m); });
}

// Long runs that make a pattern go back far must not be taken for pathological.
TEST(Regex, LongRunsAreWithinTheLimits) {
  const std::string llama = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string spaces(1 << 20, ' ');
  EXPECT_EQ(matches(llama, spaces + "x").size(), spaces.size() + 2);  // all spaces but one, '|', " x"
  const std::string grouped = R"((?:(?=[\p{L}])[^\p{Han}])+)";        // keeps a record for each repeat
  EXPECT_EQ(matches(grouped, std::string(1 << 20, 'a')).size(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace sluice::text
