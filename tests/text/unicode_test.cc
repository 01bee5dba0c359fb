// Expected values are computed by hand from the Unicode standard (chapters 3.9 and 3.11).
#include "text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::text {
namespace {

using namespace std::string_literals;

TEST(Utf8, ReplacesEachMaximalBrokenPartByOneMark) {
  EXPECT_EQ(lossy_utf8("plain"), "plain");
  EXPECT_EQ(lossy_utf8("\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80"), "\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80");
  EXPECT_EQ(lossy_utf8("a\xFF"s
                       "b"),
            "a\uFFFDb");
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x98"), "\uFFFD");                        // one prefix, cut
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x98x"), "\uFFFDx");                      // one prefix, broken off
  EXPECT_EQ(lossy_utf8("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong: C0 never starts a character
  EXPECT_EQ(lossy_utf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong: E0 needs A0..BF next
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate D800
  EXPECT_EQ(lossy_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // past U+10FFFF
  EXPECT_EQ(lossy_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                       "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");  // table 3-8
  EXPECT_EQ(lossy_utf8("\0x"s), "\0x"s);
}

TEST(Utf8, ValidityAgreesWithLossyDecoding) {
  // All strings of three bytes out of the border values of table 3-7.
  const std::string borders =
      "\x00\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF"s;
  int valid = 0;
  for (char a : borders) {
    for (char b : borders) {
      for (char c : borders) {
        const std::string s{a, b, c};
        EXPECT_EQ(valid_utf8(s), lossy_utf8(s) == s);
        valid += valid_utf8(s) ? 1 : 0;
      }
    }
  }
  // Three ASCII: 2^3. ASCII + two-byte, both orders: 2 * 2 * (2 leads * 6 continuations). Three-byte: E0 has 2 second
  // bytes (A0 BF), ED 4 (80 8F 90 9F), E1 EC EE EF 6 each, times 6 third bytes.
  EXPECT_EQ(valid, 8 + 2 * 2 * 12 + (2 + 4 + 4 * 6) * 6);
}

TEST(Utf8, DecodesAndEncodesEveryScalarValue) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string s;
    append_utf8(s, c);
    ASSERT_TRUE(valid_utf8(s)) << static_cast<unsigned>(c);
    ASSERT_EQ(decode_utf8(s).value, c);
    ASSERT_EQ(decode_last_utf8("\u20AC" + s).value, c);
    ASSERT_EQ(static_cast<std::size_t>(decode_utf8(s).bytes), s.size());
  }
  std::string surrogate;
  append_utf8(surrogate, 0xD800);
  append_utf8(surrogate, 0x110000);
  EXPECT_EQ(surrogate, "\uFFFD\uFFFD");
}

TEST(Utf8Stream, EqualsLossyDecodingForEverySplit) {
  const std::string s = "a\xE4\xBD\xA0\xF0\x9F\x98\xC3\xA9\xFF\xF0\x9F\x98\x80\xE4\xBD";
  for (std::size_t i = 0; i <= s.size(); ++i) {
    for (std::size_t j = i; j <= s.size(); ++j) {
      Utf8Stream stream;
      std::string out;
      for (std::string_view part :
           {std::string_view(s).substr(0, i), std::string_view(s).substr(i, j - i), std::string_view(s).substr(j)}) {
        stream.push(part, out);
        ASSERT_TRUE(valid_utf8(out));
      }
      stream.finish(out);
      ASSERT_EQ(out, lossy_utf8(s)) << i << " " << j;
    }
  }
}

TEST(Normalize, KnownForms) {
  EXPECT_EQ(normalize_utf8("e\u0301", NormalForm::nfc), "\u00E9");
  EXPECT_EQ(normalize_utf8("\u00E9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize_utf8("xx\u00C5\u0323yy", NormalForm::nfc), "xx\u1EA0\u030Ayy");  // marks change places
  EXPECT_EQ(normalize_utf8("\u1100\u1161\u11A8", NormalForm::nfc), "\uAC01");          // Hangul
  EXPECT_EQ(normalize_utf8("\u304B\u3099\u6F22", NormalForm::nfc), "\u304C\u6F22");    // kana with voicing mark
  EXPECT_EQ(normalize_utf8("\u0958", NormalForm::nfc), "\u0915\u093C");                // composition exclusion
  EXPECT_EQ(normalize_utf8("\uFB01\u00B2", NormalForm::nfkc), "fi2");
  EXPECT_EQ(normalize_utf8("\uFB01\u00E9", NormalForm::nfkd), "fie\u0301");
  EXPECT_EQ(normalize_utf8("\uFB01", NormalForm::nfc), "\uFB01");
  EXPECT_EQ(normalize_utf8("", NormalForm::nfc), "");
  EXPECT_EQ(normalize_utf8("a\0e\u0301"s, NormalForm::nfc), "a\0\u00E9"s);
}

// The short cut for frequent characters must not change a result. Outside reference: the library without the short cut.
std::string library_nfc(const std::string& s) {
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> r(
      utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(s.c_str())), std::free);
  return reinterpret_cast<const char*>(r.get());
}

TEST(Normalize, ShortCutOfNfcChangesNothing) {
  // What may stand before a character and join with it, and what may follow it and join.
  const std::vector<std::string> before = {"", "e", "\u304B", "\uAC00", "\u0915"};
  const std::vector<std::string> after = {"", "\u0323\u0301", "\u3099", "\u1161"};
  // Every block with a border between frequent and other characters; the insides of Han and Hangul are left out.
  const std::pair<char32_t, char32_t> ranges[] = {{0x1, 0x4E10},     {0x9FF0, 0xAC10},   {0xD790, 0xD7FF},
                                                  {0xF900, 0xFFFF},  {0x11000, 0x118FF}, {0x1D100, 0x1D1FF},
                                                  {0x1F2F0, 0x1FB10}};
  for (const auto& [first, last] : ranges) {
    for (char32_t c = first; c <= last; ++c) {
      for (const std::string& b : before) {
        for (const std::string& a : after) {
          std::string s = b;
          append_utf8(s, c);
          s += a;
          ASSERT_EQ(normalize_utf8(s, NormalForm::nfc), library_nfc(s)) << static_cast<unsigned>(c) << " in " << s;
        }
      }
    }
  }
}

TEST(Classes, Examples) {
  for (char32_t c : {U' ', U'\t', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) EXPECT_TRUE(is_whitespace(c));
  for (char32_t c : {U'a', U'\u180E', U'\u200B', U'\uFEFF', U'\x1C'}) EXPECT_FALSE(is_whitespace(c));
  for (char32_t c : {U'7', U'\u0667', U'\u2167', U'\u00BD'}) EXPECT_TRUE(is_numeric(c));
  EXPECT_FALSE(is_numeric(U'\u4E00'));
  for (char32_t c : {U'!', U'$', U'_', U'\u3002'}) EXPECT_TRUE(is_punctuation(c));
  EXPECT_FALSE(is_punctuation(U'\u20AC'));
  for (char32_t c : {U'a', U'_', U'\u0301', U'\u0667', U'\u24D0', U'\u200D'}) EXPECT_TRUE(is_word(c));
  for (char32_t c : {U'-', U' ', U'\u00BD', U'\u20AC'}) EXPECT_FALSE(is_word(c));
}

TEST(Lowercase, FullMapping) { EXPECT_EQ(lowercase_utf8("\u00C9A\u0130\u03A3\u01C4"), "\u00E9ai\u0307\u03C3\u01C6"); }

}  // namespace
}  // namespace sluice::text
