#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja_unicode.h"

// Full case mapping: one character may become several. utf8proc knows the one-to-one mappings; the unconditional ones
// that grow (Unicode's SpecialCasing) are in the table, and the final sigma is the one rule that looks at its context.
namespace sluice::text::jinja {
namespace {

struct Growing {
  char32_t from;
  std::u32string_view upper;
  std::u32string_view title;
};

constexpr Growing kGrowing[] = {
    {0x00DF, U"SS", U"Ss"},
    {0x0149, U"\u02BCN", U"\u02BCN"},
    {0x01F0, U"J\u030C", U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E96, U"H\u0331", U"H\u0331"},
    {0x1E97, U"T\u0308", U"T\u0308"},
    {0x1E98, U"W\u030A", U"W\u030A"},
    {0x1E99, U"Y\u030A", U"Y\u030A"},
    {0x1E9A, U"A\u02BE", U"A\u02BE"},
    {0x1F50, U"\u03A5\u0313", U"\u03A5\u0313"},
    {0x1F52, U"\u03A5\u0313\u0300", U"\u03A5\u0313\u0300"},
    {0x1F54, U"\u03A5\u0313\u0301", U"\u03A5\u0313\u0301"},
    {0x1F56, U"\u03A5\u0313\u0342", U"\u03A5\u0313\u0342"},
    {0x1F80, U"\u1F08\u0399", U"\u1F88"},
    {0x1F81, U"\u1F09\u0399", U"\u1F89"},
    {0x1F82, U"\u1F0A\u0399", U"\u1F8A"},
    {0x1F83, U"\u1F0B\u0399", U"\u1F8B"},
    {0x1F84, U"\u1F0C\u0399", U"\u1F8C"},
    {0x1F85, U"\u1F0D\u0399", U"\u1F8D"},
    {0x1F86, U"\u1F0E\u0399", U"\u1F8E"},
    {0x1F87, U"\u1F0F\u0399", U"\u1F8F"},
    {0x1F88, U"\u1F08\u0399", U"\u1F88"},
    {0x1F89, U"\u1F09\u0399", U"\u1F89"},
    {0x1F8A, U"\u1F0A\u0399", U"\u1F8A"},
    {0x1F8B, U"\u1F0B\u0399", U"\u1F8B"},
    {0x1F8C, U"\u1F0C\u0399", U"\u1F8C"},
    {0x1F8D, U"\u1F0D\u0399", U"\u1F8D"},
    {0x1F8E, U"\u1F0E\u0399", U"\u1F8E"},
    {0x1F8F, U"\u1F0F\u0399", U"\u1F8F"},
    {0x1F90, U"\u1F28\u0399", U"\u1F98"},
    {0x1F91, U"\u1F29\u0399", U"\u1F99"},
    {0x1F92, U"\u1F2A\u0399", U"\u1F9A"},
    {0x1F93, U"\u1F2B\u0399", U"\u1F9B"},
    {0x1F94, U"\u1F2C\u0399", U"\u1F9C"},
    {0x1F95, U"\u1F2D\u0399", U"\u1F9D"},
    {0x1F96, U"\u1F2E\u0399", U"\u1F9E"},
    {0x1F97, U"\u1F2F\u0399", U"\u1F9F"},
    {0x1F98, U"\u1F28\u0399", U"\u1F98"},
    {0x1F99, U"\u1F29\u0399", U"\u1F99"},
    {0x1F9A, U"\u1F2A\u0399", U"\u1F9A"},
    {0x1F9B, U"\u1F2B\u0399", U"\u1F9B"},
    {0x1F9C, U"\u1F2C\u0399", U"\u1F9C"},
    {0x1F9D, U"\u1F2D\u0399", U"\u1F9D"},
    {0x1F9E, U"\u1F2E\u0399", U"\u1F9E"},
    {0x1F9F, U"\u1F2F\u0399", U"\u1F9F"},
    {0x1FA0, U"\u1F68\u0399", U"\u1FA8"},
    {0x1FA1, U"\u1F69\u0399", U"\u1FA9"},
    {0x1FA2, U"\u1F6A\u0399", U"\u1FAA"},
    {0x1FA3, U"\u1F6B\u0399", U"\u1FAB"},
    {0x1FA4, U"\u1F6C\u0399", U"\u1FAC"},
    {0x1FA5, U"\u1F6D\u0399", U"\u1FAD"},
    {0x1FA6, U"\u1F6E\u0399", U"\u1FAE"},
    {0x1FA7, U"\u1F6F\u0399", U"\u1FAF"},
    {0x1FA8, U"\u1F68\u0399", U"\u1FA8"},
    {0x1FA9, U"\u1F69\u0399", U"\u1FA9"},
    {0x1FAA, U"\u1F6A\u0399", U"\u1FAA"},
    {0x1FAB, U"\u1F6B\u0399", U"\u1FAB"},
    {0x1FAC, U"\u1F6C\u0399", U"\u1FAC"},
    {0x1FAD, U"\u1F6D\u0399", U"\u1FAD"},
    {0x1FAE, U"\u1F6E\u0399", U"\u1FAE"},
    {0x1FAF, U"\u1F6F\u0399", U"\u1FAF"},
    {0x1FB2, U"\u1FBA\u0399", U"\u1FBA\u0345"},
    {0x1FB3, U"\u0391\u0399", U"\u1FBC"},
    {0x1FB4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1FB6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1FB7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {0x1FBC, U"\u0391\u0399", U"\u1FBC"},
    {0x1FC2, U"\u1FCA\u0399", U"\u1FCA\u0345"},
    {0x1FC3, U"\u0397\u0399", U"\u1FCC"},
    {0x1FC4, U"\u0389\u0399", U"\u0389\u0345"},
    {0x1FC6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1FC7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {0x1FCC, U"\u0397\u0399", U"\u1FCC"},
    {0x1FD2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1FD3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1FD6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1FD7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1FE2, U"\u03A5\u0308\u0300", U"\u03A5\u0308\u0300"},
    {0x1FE3, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x1FE4, U"\u03A1\u0313", U"\u03A1\u0313"},
    {0x1FE6, U"\u03A5\u0342", U"\u03A5\u0342"},
    {0x1FE7, U"\u03A5\u0308\u0342", U"\u03A5\u0308\u0342"},
    {0x1FF2, U"\u1FFA\u0399", U"\u1FFA\u0345"},
    {0x1FF3, U"\u03A9\u0399", U"\u1FFC"},
    {0x1FF4, U"\u038F\u0399", U"\u038F\u0345"},
    {0x1FF6, U"\u03A9\u0342", U"\u03A9\u0342"},
    {0x1FF7, U"\u03A9\u0342\u0399", U"\u03A9\u0342\u0345"},
    {0x1FFC, U"\u03A9\u0399", U"\u1FFC"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
    {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
    {0xFB16, U"\u054E\u0546", U"\u054E\u0576"},
    {0xFB17, U"\u0544\u053D", U"\u0544\u056D"},
};

constexpr char32_t kCapitalSigma = 0x03A3;
constexpr char32_t kFinalSigma = 0x03C2;
constexpr char32_t kCapitalIWithDot = 0x0130;

const Growing* find_growing(char32_t c) {
  if (c < kGrowing[0].from) return nullptr;
  const auto* it = std::lower_bound(std::begin(kGrowing), std::end(kGrowing), c,
                                    [](const Growing& g, char32_t key) { return g.from < key; });
  return it != std::end(kGrowing) && it->from == c ? it : nullptr;
}

char32_t simple_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t simple_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t simple_title(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_titlecase(c); }

// Characters that do not end a word for the sigma rule: marks, modifiers and a few signs.
bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// Whether the sigma in text[begin, end) closes a word: a cased letter before it and none after it.
bool closes_word(std::string_view text, std::size_t begin, std::size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    const char32_t c = decode_previous(text, begin);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const char32_t c = decode_next(text, end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append(std::string& out, std::u32string_view code_points) {
  for (const char32_t c : code_points) append_utf8(out, c);
}

void append_upper(std::string& out, char32_t c) {
  const Growing* growing = find_growing(c);
  if (growing != nullptr) return append(out, growing->upper);
  append_utf8(out, simple_upper(c));
}

void append_title(std::string& out, char32_t c) {
  const Growing* growing = find_growing(c);
  if (growing != nullptr) return append(out, growing->title);
  append_utf8(out, simple_title(c));
}

// Lower case of the character in text[begin, end).
void append_lower(std::string& out, std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t at = begin;
  const char32_t c = decode_next(text, at);
  if (c == kCapitalSigma) return append_utf8(out, closes_word(text, begin, end) ? kFinalSigma : simple_lower(c));
  if (c == kCapitalIWithDot) return append(out, U"i\u0307");
  append_utf8(out, simple_lower(c));
}

// Calls fn(code point, begin, end) for every character.
template <class Fn>
void for_each_character(std::string_view text, Fn fn) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = decode_next(text, at);
    fn(c, begin, at);
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::size_t, std::size_t) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t, std::size_t begin, std::size_t end) { append_lower(out, text, begin, end); });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, end);
    }
  });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_character(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (in_word) {
      append_lower(out, text, begin, end);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (is_upper(c)) {
      append_lower(out, text, begin, end);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  });
  return out;
}

}  // namespace sluice::text::jinja
