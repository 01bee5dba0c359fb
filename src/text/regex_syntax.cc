#include "text/regex_syntax.h"

#include <cstdio>
#include <vector>

#include "text/regex_class.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// Walks the pattern once and writes the translation. `atom_` is where the last repeatable item begins in the output,
// for the quantifiers that must be put around it again.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where, FunctionRef<bool(std::string_view)> script_name)
      : in_{pattern, where, script_name} {
    if (!valid_utf8(pattern)) in_.malformed("not valid UTF-8");
  }

  std::string run() {
    while (!in_.done()) item();
    if (!groups_.empty()) in_.malformed("a group is not closed");
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kNone = std::string::npos;
  static constexpr std::size_t kMaxGroups = 100;

  void item() {
    const char c = in_.peek();
    switch (c) {
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '[':
        atom(translate_class(in_));
        return;
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
        return simple_quantifier();
      case '{':
        return interval();
      case '|':
      case '^':
      case '$':
        in_.next();
        out_ += c;
        atom_ = kNone;
        return;
      case '.':
        in_.next();
        atom(".");
        return;
      default:
        literal(in_.next_char());
    }
  }

  void literal(char32_t c) {
    check_caseless(in_, literal_end_ == out_.size() ? literal_ : 0, c);
    atom(quote_char(c));
    literal_ = c;
    literal_end_ = out_.size();
  }

  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
  }

  void open_group() {
    if (groups_.size() >= kMaxGroups) in_.malformed("groups nested deeper than " + std::to_string(kMaxGroups));
    const std::size_t start = out_.size();
    in_.next();
    if (in_.starts_with("*")) in_.unsupported("(*");
    if (!in_.starts_with("?")) return push_group(start, "(?:");  // nothing refers to groups by number
    for (const char* known : {"?:", "?=", "?!", "?>", "?<=", "?<!", "?i:", "?-i:"}) {
      if (!in_.take(known)) continue;
      push_group(start, std::string("(") + known);
      if (known[1] == 'i' || known[1] == '-') in_.caseless = known[1] == 'i';
      return;
    }
    if (in_.take("?i)")) {
      // Later alternatives are covered by the option in one dialect only when it opens the group.
      const bool opens = out_.empty() || (!groups_.empty() && groups_.back().inside == out_.size());
      if (!opens) in_.unsupported("(?i) after the start of a group");
      out_ += "(?i)";
      if (!groups_.empty()) groups_.back().inside = out_.size();
      in_.caseless = true;
      atom_ = kNone;
      return;
    }
    in_.unsupported("the group (" + std::string(in_.rest().substr(0, 4)));
  }

  void push_group(std::size_t start, const std::string& text) {
    out_ += text;
    groups_.push_back({start, out_.size(), in_.caseless});
    atom_ = kNone;
  }

  void close_group() {
    if (groups_.empty()) in_.malformed("')' without '('");
    in_.next();
    out_ += ')';
    atom_ = groups_.back().start;
    in_.caseless = groups_.back().outer_caseless;
    groups_.pop_back();
  }

  void escape() {
    if (std::string set; take_class_escape(in_, set)) return atom(set);
    if (in_.take("\\b"))
      return anchor("(?:(?<=" + word() + ")(?!" + word() + ")|(?<!" + word() + ")(?=" + word() + "))");
    if (in_.take("\\B"))
      return anchor("(?:(?<=" + word() + ")(?=" + word() + ")|(?<!" + word() + ")(?!" + word() + "))");
    for (const char* same : {"\\A", "\\z", "\\Z"}) {
      if (in_.take(same)) return anchor(same);
    }
    literal(take_char_escape(in_));
  }

  static std::string word() { return "[" + word_items() + "]"; }

  void anchor(const std::string& text) {
    out_ += text;
    atom_ = kNone;
  }

  // `x?`, `x*`, `x+`, each with '?' (reluctant) or '+' (possessive) behind it: the same in both dialects.
  void simple_quantifier() {
    if (atom_ == kNone) in_.malformed("nothing before the quantifier '" + std::string(1, in_.peek()) + "'");
    out_ += in_.next();
    if (in_.starts_with("?") || in_.starts_with("+")) out_ += in_.next();
    wrap();
  }

  void interval() {
    std::string bounds;
    if (!in_.take_interval(bounds)) {  // '{' by itself is a character in both
      in_.next();
      return atom("\\{");
    }
    if (atom_ == kNone) in_.malformed("nothing before the quantifier {" + bounds + "}");
    out_ += '{' + bounds + '}';
    const bool fixed = bounds.find(',') == std::string::npos;
    if (in_.starts_with("?") && !fixed) out_ += in_.next();  // reluctant; after a fixed count '?' means "or none"
    wrap();  // Oniguruma has no possessive interval: {1,3}+ repeats the interval, so a '+' must meet a group
  }

  // Makes what was quantified one item, so that a further quantifier applies to it.
  void wrap() {
    const bool more = in_.starts_with("?") || in_.starts_with("+") || in_.starts_with("*") || in_.starts_with("{");
    if (!more) {
      atom_ = kNone;
      return;
    }
    out_.insert(atom_, "(?:");
    out_ += ')';
  }

  struct Group {
    std::size_t start;   // offset of its '(' in the output
    std::size_t inside;  // offset after its opening
    bool outer_caseless;
  };

  PatternReader in_;
  std::string out_;
  std::size_t atom_ = kNone;
  char32_t literal_ = 0;  // the last character that stands for itself
  std::size_t literal_end_ = kNone;
  std::vector<Group> groups_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, const std::string& where,
                                FunctionRef<bool(std::string_view)> script_name) {
  return Translator(pattern, where, script_name).run();
}

}  // namespace sluice::text
