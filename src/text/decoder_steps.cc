#include "text/decoder_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/fields.h"
#include "text/text_pattern.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

constexpr const char* kKnown = "Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip or Metaspace";

// A step that needs whole tokens: collects the parts of each.
class WholeTokenSink : public TokenSink {
 public:
  explicit WholeTokenSink(TokenSink& next) : next_(next) {}
  void part(std::string_view text) override { token_.append(text); }
  void end_token() override {
    token(token_);
    token_.clear();
  }
  void finish() override { next_.finish(); }

 protected:
  virtual void token(const std::string& text) = 0;
  void put(std::string_view text) {
    next_.part(text);
    next_.end_token();
  }
  TokenSink& next_;

 private:
  std::string token_;
};

// A step that changes each token by itself; `index` counts the tokens of a run.
template <class Change>
class MapSink : public WholeTokenSink {
 public:
  MapSink(TokenSink& next, Change change) : WholeTokenSink(next), change_(std::move(change)) {}

 private:
  void token(const std::string& text) override { put(change_(text, index_++)); }
  Change change_;
  std::size_t index_ = 0;
};

template <class Change>
std::unique_ptr<TokenSink> map_sink(TokenSink& next, Change change) {
  return std::make_unique<MapSink<Change>>(next, std::move(change));
}

struct Join : DecoderStep {
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch&) const override {
    return map_sink(next, [](const std::string& t, std::size_t i) { return i == 0 ? t : " " + t; });
  }
  std::string bytes_of(std::string token, RegexScratch&) const override { return token; }
};

struct Fuse : DecoderStep {
  struct Sink : TokenSink {
    explicit Sink(TokenSink& n) : next(n) {}
    void part(std::string_view text) override { next.part(text); }
    void end_token() override {}
    void finish() override {
      next.end_token();
      next.finish();
    }
    TokenSink& next;
  };
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch&) const override {
    return std::make_unique<Sink>(next);
  }
  std::string bytes_of(std::string token, RegexScratch&) const override { return token; }
};

// A token outside the byte alphabet stands for its own text.
struct ByteLevel : DecoderStep {
  static std::string bytes(const std::string& token) { return from_byte_alphabet(token).value_or(token); }
  struct Sink : WholeTokenSink {
    using WholeTokenSink::WholeTokenSink;
    void token(const std::string& text) override {
      std::string out;
      stream.push(bytes(text), out);
      if (!out.empty()) next_.part(out);
    }
    void finish() override {
      std::string out;
      stream.finish(out);
      put(out);
      next_.finish();
    }
    Utf8Stream stream;
  };
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch&) const override {
    return std::make_unique<Sink>(next);
  }
  std::string bytes_of(std::string token, RegexScratch&) const override {
    return valid_utf8(token) ? bytes(token) : token;  // a single byte of an earlier ByteFallback is not
  }
};

// Tokens like <0xE4> are bytes. A run of them is text when all of it is valid UTF-8, otherwise each of them is one
// U+FFFD: so nothing of a run is certain before its end.
struct ByteFallback : DecoderStep {
  static std::optional<char> byte_of(const std::string& token) {
    const auto hex = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    if (token.size() != 6 || token.rfind("<0x", 0) != 0 || token[5] != '>') return std::nullopt;
    // The reference reads the two characters as a signed number: "+7" is 7.
    const int high = token[3] == '+' ? 0 : hex(token[3]);
    const int low = hex(token[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high * 16 + low);
  }
  struct Sink : WholeTokenSink {
    using WholeTokenSink::WholeTokenSink;
    void token(const std::string& text) override {
      if (const std::optional<char> byte = byte_of(text)) return run.push_back(*byte);
      end_run();
      put(text);
    }
    void finish() override {
      end_run();
      next_.finish();
    }
    void end_run() {
      if (run.empty()) return;
      if (valid_utf8(run)) {
        put(run);
      } else {
        for (std::size_t i = 0; i < run.size(); ++i) put(kReplacement);
      }
      run.clear();
    }
    std::string run;
  };
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch&) const override {
    return std::make_unique<Sink>(next);
  }
  std::string bytes_of(std::string token, RegexScratch&) const override {
    const std::optional<char> byte = byte_of(token);
    return byte ? std::string(1, *byte) : token;
  }
};

struct Replace : DecoderStep {
  Replace(TextPattern p, std::string c) : pattern(std::move(p)), content(std::move(c)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch& scratch) const override {
    return map_sink(next, [this, &scratch](const std::string& t, std::size_t) { return replaced(t, scratch); });
  }
  std::string bytes_of(std::string token, RegexScratch& scratch) const override {
    return valid_utf8(token) ? replaced(token, scratch) : token;
  }
  // Tokens are short: one that a chain of steps makes longer than this comes from a hostile file.
  std::string replaced(const std::string& token, RegexScratch& scratch) const {
    constexpr std::size_t kMostBytes = 1 << 20;
    std::string text = pattern.replace(token, content, scratch);
    if (text.size() <= std::max(kMostBytes, token.size())) return text;
    fail(ErrorCode::bad_input, "tokenizer.json: decoder: a token becomes " + std::to_string(text.size()) + " bytes",
         "a replacement of a length similar to what it replaces");
  }
  TextPattern pattern;
  std::string content;
};

// Takes up to `start` characters off the front of each token and up to `stop` off its end.
struct Strip : DecoderStep {
  Strip(char32_t c, std::int64_t first, std::int64_t last) : front(first), back(last) { append_utf8(content, c); }

  std::string_view strip_front(std::string_view text, std::int64_t& left) const {
    while (left > 0 && text.substr(0, content.size()) == content) {
      text.remove_prefix(content.size());
      --left;
    }
    return text;
  }
  std::string strip(const std::string& token) const {
    std::int64_t left = front;
    std::string_view text = strip_front(token, left);
    for (std::int64_t i = 0; i < back && text.size() >= content.size(); ++i) {
      if (text.substr(text.size() - content.size()) != content) break;
      text.remove_suffix(content.size());
    }
    return std::string(text);
  }
  // With nothing to take off the end, parts go through as they come. The characters of `content` never come in halves.
  struct FrontSink : TokenSink {
    FrontSink(const Strip& s, TokenSink& n) : step(s), next(n), left(s.front) {}
    void part(std::string_view text) override {
      const std::string_view rest = step.strip_front(text, left);
      if (rest.empty()) return;
      left = 0;
      next.part(rest);
    }
    void end_token() override {
      left = step.front;
      next.end_token();
    }
    void finish() override { next.finish(); }
    const Strip& step;
    TokenSink& next;
    std::int64_t left;
  };
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch&) const override {
    if (back == 0) return std::make_unique<FrontSink>(*this, next);
    return map_sink(next, [this](const std::string& t, std::size_t) { return strip(t); });
  }
  // What is taken off depends on the neighbours after a Fuse, so a token by itself keeps everything.
  std::string bytes_of(std::string token, RegexScratch&) const override { return token; }

  std::string content;
  std::int64_t front;
  std::int64_t back;
};

struct Metaspace : DecoderStep {
  Metaspace(char32_t c, bool drop) : drop_first(drop), mark(mark_text(c)) {}
  static std::string mark_text(char32_t c) {
    std::string text;
    append_utf8(text, c);
    return text;
  }
  std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch& scratch) const override {
    return map_sink(next, [this, &scratch](const std::string& t, std::size_t i) {
      return mark.replace(t, i == 0 && drop_first ? "" : " ", scratch);
    });
  }
  std::string bytes_of(std::string token, RegexScratch& scratch) const override {
    return mark.replace(token, " ", scratch);
  }
  bool drop_first;
  TextPattern mark;
};

std::int64_t count_field(const Json& json, std::string_view key, const std::string& where) {
  const std::int64_t v = field(json, key, where).as_int(place(where, key));
  if (v < 0) fail(ErrorCode::bad_input, place(where, key) + ": " + std::to_string(v), "a count of characters");
  return v;
}

std::unique_ptr<const DecoderStep> make_metaspace(const Json& json, const std::string& where) {
  const Json* scheme = json.find("prepend_scheme");
  const bool never = (scheme != nullptr && scheme->as_string(place(where, "prepend_scheme")) == "never") ||
                     !bool_field(json, "add_prefix_space", where, true);
  return std::make_unique<Metaspace>(char_field(json, "replacement", where), !never);
}

}  // namespace

std::unique_ptr<const DecoderStep> make_join_step() { return std::make_unique<Join>(); }

std::unique_ptr<const DecoderStep> make_decoder_step(const std::string& type, const Json& json,
                                                     const std::string& where) {
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") return make_metaspace(json, where);
  if (type == "Replace") {
    return std::make_unique<Replace>(TextPattern(field(json, "pattern", where), place(where, "pattern")),
                                     string_field(json, "content", where));
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(char_field(json, "content", where), count_field(json, "start", where),
                                   count_field(json, "stop", where));
  }
  refuse_type(where, type, kKnown);
}

}  // namespace sluice::text
