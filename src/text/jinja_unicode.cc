#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace sluice::text::jinja {
namespace {

constexpr char32_t kMaxAscii = 0x7F;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Bytes of the sequence that starts with `lead`, or 0 when no sequence starts so.
std::size_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// The characters of `chars` in order, so that a long set costs no more than a short one.
std::u32string sorted_characters(std::string_view chars) {
  std::u32string set;
  for (std::size_t at = 0; at < chars.size();) set += decode_next(chars, at);
  std::sort(set.begin(), set.end());
  return set;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  static constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = sequence_bytes(static_cast<unsigned char>(text[at]));
    if (bytes == 0 || at + bytes > text.size()) return at;
    for (std::size_t i = 1; i < bytes; ++i) {
      if (!is_continuation(text[at + i])) return at;
    }
    std::size_t next = at;
    const char32_t c = decode_next(text, next);
    if (c < kSmallest[bytes] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return at;
    at = next;
  }
  return std::string_view::npos;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += is_continuation(byte) ? 0 : 1;
  return count;
}

std::size_t offset_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) decode_next(text, at);
  return at;
}

char32_t decode_next(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  char32_t c = lead < 0xE0 ? lead & 0x1F : lead < 0xF0 ? lead & 0x0F : lead & 0x07;
  while (at < text.size() && is_continuation(text[at])) {
    c = (c << 6) | (static_cast<unsigned char>(text[at++]) & 0x3F);
  }
  return c;
}

char32_t decode_previous(std::string_view text, std::size_t& end) {
  do {
    --end;
  } while (end > 0 && is_continuation(text[end]));
  std::size_t at = end;
  return decode_next(text, at);
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_space(char32_t c) {
  if (c <= kMaxAscii) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c <= kMaxAscii) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_letter(char32_t c) {
  const auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_name_start(char32_t c) { return c == '_' || is_letter(c) || category(c) == UTF8PROC_CATEGORY_NL; }

bool is_name_part(char32_t c) {
  const auto cat = category(c);
  return is_name_start(c) || cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_MC ||
         cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_PC;
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_titlecase(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

std::string_view strip(std::string_view text, Side side, const std::string_view* chars) {
  const std::u32string set = chars != nullptr ? sorted_characters(*chars) : std::u32string();
  const auto removable = [&](char32_t c) {
    return chars != nullptr ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::right && begin < end) {
    std::size_t next = begin;
    if (!removable(decode_next(text, next))) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    std::size_t previous = end;
    if (!removable(decode_previous(text, previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

}  // namespace sluice::text::jinja
