#include "text/regex_class.h"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// White space as Unicode has it. PCRE2's own \s has U+180E in addition.
constexpr std::string_view kSpaceItems =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWordItems = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of a class, Oniguruma counts the superscript digits and fractions of Latin-1 as word characters.
constexpr std::string_view kLoneWordItems = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHexItems = "0-9a-fA-F";
constexpr int kMaxClassDepth = 20;

bool ascii_alnum(char32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string bracket(bool negated, std::string_view items) { return (negated ? "[^" : "[") + std::string(items) + "]"; }

// Name of a property without the case, spaces, '_' and '-' that do not count.
std::string folded_name(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Items for a class from the name of a property. The long names are those of the Unicode general categories.
// Spellings of properties as folded_name gives them > the name that PCRE2 knows.
constexpr std::pair<std::string_view, std::string_view> kPropertyNames[] = {{"l", "L"},
                                                                            {"lu", "Lu"},
                                                                            {"ll", "Ll"},
                                                                            {"lt", "Lt"},
                                                                            {"lm", "Lm"},
                                                                            {"lo", "Lo"},
                                                                            {"m", "M"},
                                                                            {"mn", "Mn"},
                                                                            {"mc", "Mc"},
                                                                            {"me", "Me"},
                                                                            {"n", "N"},
                                                                            {"nd", "Nd"},
                                                                            {"nl", "Nl"},
                                                                            {"no", "No"},
                                                                            {"p", "P"},
                                                                            {"pc", "Pc"},
                                                                            {"pd", "Pd"},
                                                                            {"ps", "Ps"},
                                                                            {"pe", "Pe"},
                                                                            {"pi", "Pi"},
                                                                            {"pf", "Pf"},
                                                                            {"po", "Po"},
                                                                            {"s", "S"},
                                                                            {"sm", "Sm"},
                                                                            {"sc", "Sc"},
                                                                            {"sk", "Sk"},
                                                                            {"so", "So"},
                                                                            {"z", "Z"},
                                                                            {"zs", "Zs"},
                                                                            {"zl", "Zl"},
                                                                            {"zp", "Zp"},
                                                                            {"c", "C"},
                                                                            {"cc", "Cc"},
                                                                            {"cf", "Cf"},
                                                                            {"cn", "Cn"},
                                                                            {"co", "Co"},
                                                                            {"cs", "Cs"},
                                                                            {"letter", "L"},
                                                                            {"uppercaseletter", "Lu"},
                                                                            {"lowercaseletter", "Ll"},
                                                                            {"titlecaseletter", "Lt"},
                                                                            {"modifierletter", "Lm"},
                                                                            {"otherletter", "Lo"},
                                                                            {"mark", "M"},
                                                                            {"nonspacingmark", "Mn"},
                                                                            {"spacingmark", "Mc"},
                                                                            {"enclosingmark", "Me"},
                                                                            {"number", "N"},
                                                                            {"decimalnumber", "Nd"},
                                                                            {"letternumber", "Nl"},
                                                                            {"othernumber", "No"},
                                                                            {"punctuation", "P"},
                                                                            {"symbol", "S"},
                                                                            {"mathsymbol", "Sm"},
                                                                            {"currencysymbol", "Sc"},
                                                                            {"modifiersymbol", "Sk"},
                                                                            {"othersymbol", "So"},
                                                                            {"separator", "Z"},
                                                                            {"other", "C"},
                                                                            {"control", "Cc"},
                                                                            {"format", "Cf"},
                                                                            {"alphabetic", "Alphabetic"},
                                                                            {"alpha", "Alphabetic"},
                                                                            {"uppercase", "Uppercase"},
                                                                            {"upper", "Uppercase"},
                                                                            {"lowercase", "Lowercase"},
                                                                            {"lower", "Lowercase"},
                                                                            {"digit", "Nd"},
                                                                            {"emoji", "Emoji"},
                                                                            {"ideographic", "Ideographic"}};

std::string property_items(const PatternReader& in, std::string_view name) {
  const std::string key = folded_name(name);
  for (const auto& [from, to] : kPropertyNames) {
    if (key == from) return "\\p{" + std::string(to) + "}";
  }
  if (key == "whitespace" || key == "space") return std::string(kSpaceItems);
  if (key == "word") return std::string(kWordItems);
  if (key == "alnum") return "\\p{Alphabetic}\\p{Nd}";
  if (!key.empty() && in.script_name(key)) return "\\p{sc:" + key + "}";
  in.unsupported("the property \"" + std::string(name) + "\"");
}

// A set of characters on its way to PCRE2: items that fit into one bracket, and expressions for what does not.
struct Set {
  std::string items;
  std::vector<std::string> others;  // each matches one character

  std::string expression(bool negated) const {
    if (others.empty()) {
      if (items.empty()) return negated ? "(?s:.)" : "(?!)";
      return bracket(negated, items);
    }
    std::string any;
    if (!items.empty()) any = bracket(false, items);
    for (const std::string& o : others) any += (any.empty() ? "" : "|") + o;
    return negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
  }
};

std::string escape_items(PatternReader& in, bool& negated) {
  const char c = in.pattern[in.position + 1];
  negated = c == 'S' || c == 'W' || c == 'D' || c == 'H' || c == 'P';
  in.position += 2;
  if (c == 's' || c == 'S') return std::string(kSpaceItems);
  if (c == 'w' || c == 'W') return std::string(kWordItems);
  if (c == 'd' || c == 'D') return "\\p{Nd}";
  if (c == 'h' || c == 'H') return std::string(kHexItems);
  if (!in.take("{")) in.malformed("\\p without {name}");
  if (in.take("^")) negated = !negated;
  const std::size_t close = in.rest().find('}');
  if (close == std::string_view::npos) in.malformed("\\p{ without '}'");
  const std::string_view name = in.rest().substr(0, close);
  in.position += close + 1;
  return property_items(in, name);
}

bool at_class_escape(const PatternReader& in) {
  return in.starts_with("\\") && in.rest().size() > 1 &&
         std::string_view("sSwWdDhHpP").find(in.rest()[1]) != std::string_view::npos;
}

void posix_class(PatternReader& in, Set& set) {
  if (in.caseless) in.unsupported("[: :] in (?i)");
  const std::size_t close = in.rest().find(":]");
  if (close == std::string_view::npos) in.malformed("'[:' without ':]'");
  const std::string_view name = in.rest().substr(2, close - 2);
  for (const char* known : {"alpha", "upper", "lower", "digit", "space", "alnum", "word"}) {
    if (name != known) continue;
    set.items += property_items(in, name);
    in.position += close + 2;
    return;
  }
  in.unsupported("the class [:" + std::string(name) + ":]");
}

char32_t class_char(PatternReader& in) {
  if (in.take("\\b")) return 8;
  const char32_t c = in.starts_with("\\") ? take_char_escape(in) : in.next_char();
  check_caseless(in, 0, c);
  return c;
}

// A character or a range; a '-' that ends the class or follows a set stands for itself.
void char_or_range(PatternReader& in, Set& set) {
  const char32_t low = class_char(in);
  set.items += quote_char(low);
  if (!in.starts_with("-") || in.rest().size() < 2 || in.rest()[1] == ']') return;
  if (in.rest()[1] == '[') in.unsupported("a range that ends in a class");
  in.next();
  if (at_class_escape(in)) in.unsupported("a range that ends in a class");
  const char32_t high = class_char(in);
  if (high < low) in.malformed("a range out of order");
  set.items += '-' + quote_char(high);
}

void class_item(PatternReader& in, Set& set) {
  if (in.starts_with("[:")) return posix_class(in, set);
  if (in.starts_with("[")) {
    set.others.push_back(translate_class(in));
  } else if (at_class_escape(in)) {
    // Oniguruma adds the other case of what a property holds, PCRE2 does not.
    if (in.caseless && (in.starts_with("\\p") || in.starts_with("\\P")))
      in.unsupported("a property in a class in (?i)");
    bool negated = false;
    const std::string items = escape_items(in, negated);
    if (negated) {
      set.others.push_back(bracket(true, items));
    } else {
      set.items += items;
    }
  } else {
    char_or_range(in, set);
  }
}

}  // namespace

char32_t PatternReader::next_char() {
  const CodePoint c = decode_utf8(rest());
  position += static_cast<std::size_t>(c.bytes);
  return c.value;
}

bool PatternReader::take(std::string_view text) {
  if (!starts_with(text)) return false;
  position += text.size();
  return true;
}

bool PatternReader::take_interval(std::string& bounds) {
  const std::string_view s = rest();
  std::size_t i = 1;
  const auto digits = [&] {
    std::string out;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9' && out.size() < 6) out += s[i++];
    return out;
  };
  const std::string low = digits();
  bounds = low.empty() ? "0" : low;
  std::string high;
  if (i < s.size() && s[i] == ',') {
    ++i;
    high = digits();
    bounds += ',' + high;
  } else if (low.empty()) {
    return false;
  }
  if (i >= s.size() || s[i] != '}' || (low.empty() && high.empty())) return false;
  position += i + 1;
  return true;
}

void PatternReader::malformed(const std::string& why) const {
  fail(ErrorCode::bad_input,
       where + ": pattern \"" + std::string(pattern) + "\": " + why + " at byte " + std::to_string(position),
       "a regular expression");
}

void PatternReader::unsupported(const std::string& what) const {
  fail(ErrorCode::unsupported,
       where + ": pattern \"" + std::string(pattern) + "\" uses " + what + " at byte " + std::to_string(position),
       "constructs whose meaning is the same in Oniguruma and PCRE2");
}

void check_caseless(const PatternReader& in, char32_t previous, char32_t c) {
  if (!in.caseless) return;
  if (c >= 0x80) in.unsupported("a character outside ASCII in (?i)");
  const auto lower = [](char32_t v) { return v >= 'A' && v <= 'Z' ? v - 'A' + 'a' : v; };
  const char32_t a = lower(previous);
  const char32_t b = lower(c);
  const bool ligature = (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
  if (ligature) in.unsupported("letters in (?i) that also exist as one character");
}

std::string quote_char(char32_t c) {
  std::string out;
  if (c < 0x20 || c == 0x7F) {
    char text[16];
    std::snprintf(text, sizeof text, "\\x{%x}", static_cast<unsigned>(c));
    return text;
  }
  if (c < 0x80 && !ascii_alnum(c) && c != ' ') out += '\\';
  append_utf8(out, c);
  return out;
}

std::string word_items() { return std::string(kWordItems) + std::string(kLoneWordItems); }

std::string translate_class(PatternReader& in) {
  if (++in.class_depth > kMaxClassDepth) in.malformed("classes nested deeper than " + std::to_string(kMaxClassDepth));
  in.next();
  const bool negated = in.take("^");
  std::vector<Set> parts(1);  // what stands between "&&"
  for (bool first = true; first || !in.starts_with("]"); first = false) {
    if (in.done()) in.malformed("a class is not closed");
    if (in.take("&&")) {
      parts.emplace_back();
    } else {
      class_item(in, parts.back());
    }
    if (in.done()) in.malformed("a class is not closed");
  }
  in.next();
  --in.class_depth;
  if (parts.size() == 1) return parts[0].expression(negated);
  std::string all;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) all += "(?=" + parts[i].expression(false) + ")";
  all += parts.back().expression(false);
  return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
}

bool take_class_escape(PatternReader& in, std::string& set) {
  if (!at_class_escape(in)) return false;
  bool negated = false;
  std::string items = escape_items(in, negated);
  if (items == kWordItems) items = word_items();
  set = bracket(negated, items);
  return true;
}

char32_t take_char_escape(PatternReader& in) {
  in.next();
  if (in.done()) in.malformed("'\\' at the end");
  const char32_t c = in.next_char();
  if (!ascii_alnum(c)) return c;
  static constexpr std::pair<char, char> kControls[] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'},  {'f', '\f'},
                                                        {'v', '\v'}, {'a', '\a'}, {'e', '\x1B'}};
  for (const auto& [letter, value] : kControls) {
    if (c == static_cast<char32_t>(letter)) return static_cast<char32_t>(value);
  }
  const bool braces = c == 'x' && in.take("{");
  const int most = braces ? 8 : c == 'x' ? 2 : c == 'u' ? 4 : 0;
  std::uint64_t value = 0;
  int digits = 0;
  while (digits < most && !in.done() && hex_value(in.peek()) >= 0) {
    value = value * 16 + static_cast<std::uint64_t>(hex_value(in.next()));
    ++digits;
  }
  if (digits == 0 || (c == 'u' && digits != 4)) in.unsupported("the escape \\" + std::string(1, static_cast<char>(c)));
  if (braces && !in.take("}")) in.malformed("\\x{ without '}'");
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) in.malformed("a value that is no character");
  // In Oniguruma \x80 to \xFF is a byte of the encoding, half a character.
  if (!braces && c == 'x' && value >= 0x80) in.unsupported("\\xHH above 7F");
  return static_cast<char32_t>(value);
}

}  // namespace sluice::text
