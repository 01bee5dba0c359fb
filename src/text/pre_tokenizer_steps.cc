#include "text/pre_tokenizer_steps.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/fields.h"
#include "text/text_pattern.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

using Piece = PreTokenizer::Piece;
using Sink = PreTokenizer::Sink;
using Step = PreTokenizer::Step;

constexpr const char* kKnown =
    "Sequence, Split, ByteLevel, Digits, Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit or Metaspace";

// The split that byte-level models use unless their file brings its own.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Piece sub_piece(Piece piece, TextSpan span) {
  return {piece.text.substr(span.begin, span.end - span.begin), piece.starts_text && span.begin == 0};
}

Piece made_piece(std::string text, bool starts_text, PreTokenizerScratch& scratch) {
  scratch.texts.push_back(std::move(text));
  return {scratch.texts.back(), starts_text};
}

struct Split : Step {
  Split(TextPattern p, SplitBehavior b, bool i) : pattern(std::move(p)), behavior(b), invert(i) {}
  void apply(Piece piece, PreTokenizerScratch& scratch, Sink sink) const override {
    const auto emit = [&](TextSpan span) { sink(sub_piece(piece, span)); };
    Splitter splitter(behavior, invert, emit);
    pattern.parts(piece.text, scratch.regex, [&](TextSpan part, bool match) { splitter.part(part, match); });
    splitter.finish();
  }
  TextPattern pattern;
  SplitBehavior behavior;
  bool invert;
};

// Every character of a class is a match by itself.
struct ClassSplit : Step {
  ClassSplit(bool (*c)(char32_t), SplitBehavior b) : matches(c), behavior(b) {}
  void apply(Piece piece, PreTokenizerScratch&, Sink sink) const override {
    const auto emit = [&](TextSpan span) { sink(sub_piece(piece, span)); };
    Splitter splitter(behavior, false, emit);
    TextSpan plain;
    for (std::size_t i = 0; i < piece.text.size();) {
      const CodePoint c = decode_utf8(piece.text.substr(i));
      const std::size_t end = i + static_cast<std::size_t>(c.bytes);
      if (matches(c.value)) {
        if (plain.begin < i) splitter.part({plain.begin, i}, false);
        splitter.part({i, end}, true);
        plain.begin = end;
      }
      i = end;
    }
    if (plain.begin < piece.text.size()) splitter.part({plain.begin, piece.text.size()}, false);
    splitter.finish();
  }
  bool (*matches)(char32_t);
  SplitBehavior behavior;
};

// Runs of word characters and runs of anything else that is no white space.
struct Whitespace : Step {
  void apply(Piece piece, PreTokenizerScratch&, Sink sink) const override {
    enum class Kind { space, word, other };
    Kind kind = Kind::space;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < piece.text.size();) {
      const CodePoint c = decode_utf8(piece.text.substr(i));
      const Kind next = is_word(c.value) ? Kind::word : is_whitespace(c.value) ? Kind::space : Kind::other;
      if (next != kind) {
        if (kind != Kind::space) sink(sub_piece(piece, {begin, i}));
        begin = i;
        kind = next;
      }
      i += static_cast<std::size_t>(c.bytes);
    }
    if (kind != Kind::space) sink(sub_piece(piece, {begin, piece.text.size()}));
  }
};

struct ByteLevel : Step {
  ByteLevel(bool p, bool regex, const std::string& where) : prefix_space(p) {
    if (regex) pattern.emplace(kByteLevelPattern, where);
  }
  void apply(Piece piece, PreTokenizerScratch& scratch, Sink sink) const override {
    if (prefix_space && piece.text.front() != ' ') {
      piece = made_piece(" " + std::string(piece.text), piece.starts_text, scratch);
    }
    if (!pattern) return sink(piece);
    std::size_t done = 0;
    TextSpan m;
    while (done < piece.text.size() && pattern->search(scratch.regex, piece.text, done, m)) {
      if (m.begin > done) sink(sub_piece(piece, {done, m.begin}));
      sink(sub_piece(piece, m));
      done = m.end;
    }
    if (done < piece.text.size()) sink(sub_piece(piece, {done, piece.text.size()}));
  }
  bool prefix_space;
  std::optional<Regex> pattern;
};

struct ByteAlphabet : Step {
  void apply(Piece piece, PreTokenizerScratch& scratch, Sink sink) const override {
    sink(made_piece(to_byte_alphabet(piece.text), piece.starts_text, scratch));
  }
};

// Spaces become a visible character, one more goes in front, and pieces begin at it.
struct Metaspace : Step {
  enum class Prepend { always, first, never };

  Metaspace(const Json& json, const std::string& where)
      : split(bool_field(json, "split", where, true)), spaces(" "), marks(mark_of(json, where)) {
    append_utf8(mark, char_field(json, "replacement", where));
    const Json* scheme = json.find("prepend_scheme");
    const std::string name = scheme == nullptr ? "always" : scheme->as_string(place(where, "prepend_scheme"));
    prepend = name == "first" ? Prepend::first : name == "never" ? Prepend::never : Prepend::always;
    if (prepend == Prepend::always && name != "always") {
      fail(ErrorCode::bad_input, place(where, "prepend_scheme") + ": \"" + name + "\"", "always, first or never");
    }
    if (bool_field(json, "add_prefix_space", where, true)) return;
    if (scheme != nullptr && prepend != Prepend::never) {
      fail(ErrorCode::bad_input, where + ": add_prefix_space is false and prepend_scheme is " + name);
    }
    prepend = Prepend::never;
  }

  static TextPattern mark_of(const Json& json, const std::string& where) {
    std::string text;
    append_utf8(text, char_field(json, "replacement", where));
    return TextPattern(text);
  }

  void apply(Piece piece, PreTokenizerScratch& scratch, Sink sink) const override {
    std::string text = spaces.replace(piece.text, mark, scratch.regex);
    const bool wants = prepend == Prepend::always || (prepend == Prepend::first && piece.starts_text);
    if (wants && text.rfind(mark, 0) != 0) text.insert(0, mark);
    const Piece made = made_piece(std::move(text), piece.starts_text, scratch);
    if (!split) return sink(made);
    const auto emit = [&](TextSpan span) { sink(sub_piece(made, span)); };
    Splitter splitter(SplitBehavior::merged_with_next, false, emit);
    marks.parts(made.text, scratch.regex, [&](TextSpan part, bool match) { splitter.part(part, match); });
    splitter.finish();
  }

  Prepend prepend = Prepend::always;
  bool split;
  std::string mark;
  TextPattern spaces;
  TextPattern marks;
};

}  // namespace

std::unique_ptr<const Step> make_byte_alphabet_step() { return std::make_unique<ByteAlphabet>(); }

std::unique_ptr<const Step> make_pre_tokenizer_step(const std::string& type, const Json& json,
                                                    const std::string& where) {
  if (type == "Split") {
    return std::make_unique<Split>(TextPattern(field(json, "pattern", where), place(where, "pattern")),
                                   split_behavior(field(json, "behavior", where), place(where, "behavior")),
                                   bool_field(json, "invert", where, false));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(field(json, "add_prefix_space", where).as_bool(place(where, "add_prefix_space")),
                                       bool_field(json, "use_regex", where, true), where);
  }
  if (type == "Digits") {
    const bool each = bool_field(json, "individual_digits", where, false);
    return std::make_unique<ClassSplit>(is_numeric, each ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<ClassSplit>(is_whitespace, SplitBehavior::removed);
  if (type == "Punctuation") {
    const Json* behavior = json.find("behavior");
    return std::make_unique<ClassSplit>(is_punctuation, behavior == nullptr
                                                            ? SplitBehavior::isolated
                                                            : split_behavior(*behavior, place(where, "behavior")));
  }
  if (type == "CharDelimiterSplit") {
    std::string delimiter;
    append_utf8(delimiter, char_field(json, "delimiter", where));
    return std::make_unique<Split>(TextPattern(delimiter), SplitBehavior::removed, false);
  }
  if (type == "Metaspace") return std::make_unique<Metaspace>(json, where);
  refuse_type(where, type, kKnown);
}

}  // namespace sluice::text
