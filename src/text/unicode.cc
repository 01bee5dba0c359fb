#include "text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/error.h"

namespace sluice::text {
namespace {

// Length that a lead byte announces, and the range of its second byte: this is where overlong forms, surrogates and
// values past U+10FFFF are excluded (Unicode table 3-7).
struct Lead {
  int bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead lead_of(unsigned char b) {
  if (b < 0x80) return {1};
  if (b < 0xC2) return {0};
  if (b < 0xE0) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Bytes of the ASCII run at the front, looked at eight at a time.
std::size_t ascii_run(std::string_view s) {
  std::size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, s.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < s.size() && static_cast<unsigned char>(s[i]) < 0x80) ++i;
  return i;
}

// True for characters that NFC neither changes nor joins with the character before them. Not all such characters: the
// frequent ranges, so that most text is copied without calling the library.
bool starts_unchanged(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) ||
         (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xFF01 && c <= 0xFF60) ||
         (c >= 0x1F300 && c <= 0x1FAFF);
}

void append_library_form(std::string& out, std::string_view s, NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(s.data());
  const utf8proc_ssize_t n =
      utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(s.size()), &result, static_cast<utf8proc_option_t>(options));
  if (n == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (n < 0) fail(ErrorCode::bad_input, std::string("Unicode normalisation: ") + utf8proc_errmsg(n));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(n));
}

std::string nfc(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  std::size_t copied = 0;  // everything before it is in `out`
  std::size_t last = 0;    // start of the character before `i`
  for (std::size_t i = 0; i < s.size();) {
    const CodePoint c = decode_utf8(s.substr(i));
    if (starts_unchanged(c.value)) {
      last = i;
      i += static_cast<std::size_t>(c.bytes);
      continue;
    }
    out.append(s, copied, last - copied);
    std::size_t end = i;
    while (end < s.size()) {
      const CodePoint d = decode_utf8(s.substr(end));
      if (starts_unchanged(d.value)) break;
      end += static_cast<std::size_t>(d.bytes);
    }
    append_library_form(out, s.substr(last, end - last), NormalForm::nfc);
    copied = last = i = end;
  }
  out.append(s, copied, s.size() - copied);
  return out;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.bytes == 0) return {Utf8Step::Kind::broken, 1};
  for (int i = 1; i < lead.bytes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (k >= bytes.size()) return {Utf8Step::Kind::incomplete, i};
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (at(k) < low || at(k) > high) return {Utf8Step::Kind::broken, i};
  }
  return {Utf8Step::Kind::character, lead.bytes};
}

bool valid_utf8(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(ascii_run(bytes));
    if (bytes.empty()) return true;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind != Utf8Step::Kind::character) return false;
    bytes.remove_prefix(static_cast<std::size_t>(step.bytes));
  }
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

CodePoint decode_utf8(std::string_view valid) {
  const auto at = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(valid[i])); };
  const char32_t b = at(0);
  if (b < 0x80) return {b, 1};
  if (b < 0xE0) return {(b & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (b < 0xF0) return {(b & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(b & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

CodePoint decode_last_utf8(std::string_view valid) {
  std::size_t start = valid.size() - 1;
  while ((static_cast<unsigned char>(valid[start]) & 0xC0) == 0x80) --start;
  return decode_utf8(valid.substr(start));
}

void append_utf8(std::string& out, char32_t c) {
  if ((c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF) {
    out.append(kReplacement);
    return;
  }
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

bool is_whitespace(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t k = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  const utf8proc_category_t k = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  // The Alphabetic characters outside L, M and N: circled, squared and negative letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string normalize_utf8(std::string_view valid, NormalForm form) {
  if (ascii_run(valid) == valid.size()) return std::string(valid);
  if (form == NormalForm::nfc) return nfc(valid);
  std::string out;
  append_library_form(out, valid, form);
  return out;
}

std::string lowercase_utf8(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  while (!valid.empty()) {
    const CodePoint c = decode_utf8(valid);
    if (c.value == 0x130) {
      out.append("i\xCC\x87");
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
    }
    valid.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    pending_.clear();
    joined.append(bytes);
    bytes = joined;
  }
  while (!bytes.empty()) {
    const std::size_t plain = ascii_run(bytes);
    out.append(bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Step::Kind::incomplete) {
      pending_ = bytes;
      return;
    }
    out.append(step.kind == Utf8Step::Kind::character ? bytes.substr(0, static_cast<std::size_t>(step.bytes))
                                                      : kReplacement);
    bytes.remove_prefix(static_cast<std::size_t>(step.bytes));
  }
}

void Utf8Stream::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

}  // namespace sluice::text
