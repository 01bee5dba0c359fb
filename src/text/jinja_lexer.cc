#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }

// Line breaks as "\n", and without the one at the very end.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view origin) : source_(std::move(source)), origin_(origin) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) template_text();
    push(TokenType::end);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().substr(0, text.size()) == text; }
  [[noreturn]] void fail(const std::string& what) const { fail_at(origin_, line_, what); }

  void push(TokenType type, std::string text = "") { tokens_.push_back({type, line_, std::move(text), 0, 0}); }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  void skip_space() { advance(rest().size() - strip(rest(), Side::left).size()); }

  // The next "{{", "{%" or "{#" at or after `from`, or npos.
  std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = from; (at = source_.find('{', at)) != std::string::npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // Text up to the next tag, then that tag.
  void template_text() {
    const std::size_t tag = find_tag(at_);
    if (tag == std::string::npos) {
      push(TokenType::text, std::string(rest()));
      advance(rest().size());
      return;
    }
    const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    emit_text(tag, mark, source_[tag + 1] != '{');
    advance(2 + (mark == '-' || mark == '+' ? 1 : 0));
    tag_body(source_[tag + 1]);
  }

  // Text before a tag at `end`, with the white space rules applied.
  void emit_text(std::size_t end, char mark, bool is_block) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (mark == '-') {
      text = strip(text, Side::right);
    } else if (mark != '+' && is_block) {
      const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      const bool at_line_start = line_begin > 0 || line_starting_;
      if (at_line_start && strip(text.substr(line_begin), Side::both).empty()) text = text.substr(0, line_begin);
    }
    if (!text.empty()) push(TokenType::text, std::string(text));
    advance(end - at_);
  }

  void tag_body(char kind) {
    const std::size_t begin = at_;
    if (kind == '#') {
      comment();
    } else if (kind == '%' && raw_begins()) {
      raw();
    } else {
      push(kind == '%' ? TokenType::block_begin : TokenType::print_begin);
      expression_tokens(kind == '%');
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  // Consumes "%}" (or "#}") with its mark and what the mark and trim_blocks drop. False when it is not there.
  bool close_tag(std::string_view closing, bool may_keep) {
    const bool dash = looking_at("-" + std::string(closing));
    const bool plus = may_keep && looking_at("+" + std::string(closing));
    if (!dash && !plus && !looking_at(closing)) return false;
    advance(closing.size() + (dash || plus ? 1 : 0));
    if (dash) {
      skip_space();
    } else if (!plus && may_keep && looking_at("\n")) {
      advance(1);
    }
    return true;
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment is not closed with #}");
    const char mark = end > at_ ? source_[end - 1] : '\0';
    advance(end - at_ - (mark == '-' || mark == '+' ? 1 : 0));
    close_tag("#}", true);
  }

  // Whether the tag that was just opened reads "raw %}"; consumes it then.
  bool raw_begins() {
    std::string_view text = strip(rest(), Side::left);
    if (text.substr(0, 3) != "raw") return false;
    text = strip(text.substr(3), Side::left);
    const bool dash = text.substr(0, 3) == "-%}";
    if (!dash && text.substr(0, 2) != "%}") return false;
    advance(rest().size() - text.size() + (dash ? 3 : 2));
    if (dash) skip_space();
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    return true;
  }

  void raw() {
    const int first_line = line_;
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const std::string_view after = std::string_view(source_).substr(tag + 2 + (mark == '-' || mark == '+' ? 1 : 0));
      std::string_view body = strip(after, Side::left);
      if (body.substr(0, 6) != "endraw") continue;
      body = strip(body.substr(6), Side::left);
      const bool marked = body.substr(0, 3) == "-%}" || body.substr(0, 3) == "+%}";
      if (!marked && body.substr(0, 2) != "%}") continue;
      emit_text(tag, mark, true);
      advance(rest().size() - body.size());
      close_tag("%}", true);
      return;
    }
    fail_at(origin_, first_line, "a raw block is not closed with {% endraw %}");
  }

  void expression_tokens(bool is_block) {
    const int first_line = line_;
    while (true) {
      if (brackets_.empty() && close_tag_token(is_block)) return;
      skip_space();
      if (at_ >= source_.size())
        fail_at(origin_, first_line, is_block ? "a {% tag is not closed" : "a {{ tag is not closed");
      if (brackets_.empty() && close_tag_token(is_block)) return;
      expression_token();
    }
  }

  bool close_tag_token(bool is_block) {
    const int line = line_;
    if (!close_tag(is_block ? "%}" : "}}", is_block)) return false;
    tokens_.push_back({is_block ? TokenType::block_end : TokenType::print_end, line, "", 0, 0});
    return true;
  }

  void expression_token() {
    const char c = source_[at_];
    std::size_t next = at_;
    if (is_digit(c)) {
      number();
    } else if (is_name_start(decode_next(source_, next))) {
      name();
    } else if (c == '"' || c == '\'') {
      string_literal(c);
    } else {
      sign();
    }
  }

  void name() {
    std::size_t end = at_;
    for (std::size_t next = at_; next < source_.size(); end = next) {
      if (!is_name_part(decode_next(source_, next))) break;
    }
    push(TokenType::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void string_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    push(TokenType::string, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), origin_, line_));
    advance(end + 1 - at_);
  }

  // End of a run of digits in which single underscores may stand between two digits.
  template <class IsDigit>
  std::size_t digits_end(std::size_t at, IsDigit is_one) const {
    while (at < source_.size()) {
      if (is_one(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && is_one(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  // End of a float literal at the current position, or npos when it is none.
  std::size_t real_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::string::npos;
    const std::size_t whole = digits_end(at_, is_digit);
    std::size_t end = whole;
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) end = digits_end(end + 1, is_digit);
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (digit_at(exponent)) return digits_end(exponent, is_digit);
    }
    return end == whole ? std::string::npos : end;
  }

  std::size_t integer_end() const {
    const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    std::size_t end = at_ + 2;
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      const auto is_one = [mark](char c) {
        return mark == 'x' ? is_hex_digit(c) : c >= '0' && c <= (mark == 'o' ? '7' : '1');
      };
      end = digits_end(end, is_one);
      if (end > at_ + 2) return end;
    }
    if (source_[at_] != '0') return digits_end(at_, is_digit);
    return digits_end(at_, [](char c) { return c == '0'; });
  }

  void number() {
    const std::size_t real_stop = real_end();
    const std::size_t end = real_stop != std::string::npos ? real_stop : integer_end();
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    Token token{real_stop != std::string::npos ? TokenType::real : TokenType::integer, line_, digits, 0, 0};
    if (token.type == TokenType::real) {
      token.real = parse_float(digits).value_or(0);
    } else {
      token.integer = integer_value(digits);
    }
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  std::int64_t integer_value(std::string_view digits) const {
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && !is_digit(digits[1])) {
      base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    }
    std::int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc()) fail("integer " + std::string(digits.substr(0, 40)) + " does not fit in 64 bits");
    return value;
  }

  void sign() {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    const std::string_view two = rest().substr(0, 2);
    const bool is_two = std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo);
    if (!is_two && kOne.find(source_[at_]) == std::string_view::npos) {
      std::size_t next = 0;
      decode_next(rest(), next);
      fail("unexpected character '" + std::string(rest().substr(0, next)) + "' in a tag");
    }
    push(TokenType::sign, std::string(two.substr(0, is_two ? 2 : 1)));
    balance(source_[at_]);
    advance(is_two ? 2 : 1);
  }

  void balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail(std::string("unexpected '") + c + "'");
    if (brackets_.back() != c) fail(std::string("unexpected '") + c + "', expected '" + brackets_.back() + "'");
    brackets_.pop_back();
  }

  std::string source_;
  std::string_view origin_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones that are still owed
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(std::string_view origin, int line, const std::string& what, const std::string& hint) {
  sluice::fail(ErrorCode::bad_input, std::string(origin) + " line " + std::to_string(line) + ": " + what, "", hint);
}

std::vector<Token> tokenize(std::string_view source, std::string_view origin) {
  const std::size_t bad = find_invalid_utf8(source);
  if (bad != std::string_view::npos) {
    const auto line = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
    fail_at(origin, static_cast<int>(line), "the template is not valid UTF-8 at byte " + std::to_string(bad));
  }
  return Lexer(normalize(source), origin).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::text:
      return "text";
    case TokenType::block_begin:
      return "'{%'";
    case TokenType::block_end:
      return "the end of the tag";
    case TokenType::print_begin:
      return "'{{'";
    case TokenType::print_end:
      return "'}}'";
    case TokenType::end:
      return "the end of the template";
    case TokenType::string:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace sluice::text::jinja
