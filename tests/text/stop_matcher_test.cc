#include "text/stop_matcher.h"

#include "tiny_tokenizer.h"

namespace sluice::text {
namespace {

struct Outcome {
  std::string text;
  int index = -1;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
  StopMatcher matcher(stops);
  Outcome out;
  for (const std::string& part : parts) out.text += matcher.push(part);
  out.text += matcher.flush();
  out.index = matcher.found_index();
  return out;
}

TEST(StopMatcher, FindsAcrossParts) {
  EXPECT_EQ(run({"\n\n"}, {"answer 7", "\n", "\nmore"}), (Outcome{"answer 7", 0}));
  EXPECT_EQ(run({"Question", "<end>"}, {"ok <e", "nd", "> x"}), (Outcome{"ok ", 1}));
  EXPECT_EQ(run({"abc"}, {"ab", "ab", "c"}), (Outcome{"ab", 0}));
  EXPECT_EQ(run({"aab"}, {"aaa", "ab"}), (Outcome{"aa", 0}));  // an overlap inside the stop string
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</s>", "st"});
  EXPECT_EQ(matcher.push("x <"), "x ");
  EXPECT_EQ(matcher.push("/"), "");
  EXPECT_EQ(matcher.push(""), "");
  EXPECT_EQ(matcher.push("b>"), "</b>");
  EXPECT_EQ(matcher.push("as"), "a");
  EXPECT_FALSE(matcher.found());
  EXPECT_EQ(matcher.flush(), "s");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, TheFirstCompleteOneWins) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", 1}));  // "bc" is complete earlier
  EXPECT_EQ(run({"bc", "abc"}, {"xabcd"}), (Outcome{"x", 1}));    // both at once: the longer
  EXPECT_EQ(run({"abc", "bc"}, {"xabcd"}), (Outcome{"x", 0}));
  EXPECT_EQ(run({"later", "now"}, {"now and later"}), (Outcome{"", 1}));
}

TEST(StopMatcher, NothingAfterTheStop) {
  StopMatcher matcher({"."});
  EXPECT_EQ(matcher.push("one. two."), "one");
  EXPECT_TRUE(matcher.found());
  EXPECT_EQ(matcher.push("three"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, RefusesAnEmptyStop) {
  expect_error(ErrorCode::usage, {"empty stop string"}, [] { StopMatcher({"a", ""}); });
}

// Reference: the earliest end, then the longest, found by trying all places.
Outcome slow(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    Outcome best;
    std::size_t longest = 0;
    for (std::size_t s = 0; s < stops.size(); ++s) {
      const std::size_t n = stops[s].size();
      if (n > end || n <= longest || text.compare(end - n, n, stops[s]) != 0) continue;
      longest = n;
      best = {text.substr(0, end - n), static_cast<int>(s)};
    }
    if (longest > 0) return best;
  }
  return {text, -1};
}

// All texts of up to 8 letters out of two, all ways of cutting them in two.
TEST(StopMatcher, DoesNotDependOnTheParts) {
  const std::vector<std::vector<std::string>> lists = {
      {"ab"}, {"aba", "bb"}, {"aabaab", "baa"}, {"abab", "ba", "bbbb"}};
  for (const auto& stops : lists) {
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::string text;
      for (int i = 0; i < 8; ++i) text += (bits >> i & 1) != 0 ? 'a' : 'b';
      const Outcome expected = slow(stops, text);
      std::vector<std::string> letters;
      for (char c : text) letters.emplace_back(1, c);
      ASSERT_EQ(run(stops, letters), expected) << text;
      for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        ASSERT_EQ(run(stops, {text.substr(0, cut), text.substr(cut)}), expected) << text << " " << cut;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::text
