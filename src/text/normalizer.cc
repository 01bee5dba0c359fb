#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/fields.h"
#include "text/text_pattern.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

constexpr const char* kKnown = "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip or ByteLevel";

struct Form : Normalizer::Step {
  explicit Form(NormalForm f) : form(f) {}
  std::string apply(std::string_view text, RegexScratch&) const override { return normalize_utf8(text, form); }
  NormalForm form;
};

struct Lowercase : Normalizer::Step {
  std::string apply(std::string_view text, RegexScratch&) const override { return lowercase_utf8(text); }
};

struct ByteLevel : Normalizer::Step {
  std::string apply(std::string_view text, RegexScratch&) const override { return to_byte_alphabet(text); }
};

struct Prepend : Normalizer::Step {
  explicit Prepend(std::string p) : prefix(std::move(p)) {}
  std::string apply(std::string_view text, RegexScratch&) const override {
    return text.empty() ? std::string() : prefix + std::string(text);
  }
  std::string prefix;
};

struct Replace : Normalizer::Step {
  Replace(TextPattern p, std::string c) : pattern(std::move(p)), content(std::move(c)) {}
  std::string apply(std::string_view text, RegexScratch& scratch) const override {
    return pattern.replace(text, content, scratch);
  }
  TextPattern pattern;
  std::string content;
};

struct Strip : Normalizer::Step {
  Strip(bool l, bool r) : left(l), right(r) {}
  std::string apply(std::string_view text, RegexScratch&) const override {
    while (left && !text.empty() && is_whitespace(decode_utf8(text).value)) {
      text.remove_prefix(static_cast<std::size_t>(decode_utf8(text).bytes));
    }
    while (right && !text.empty() && is_whitespace(decode_last_utf8(text).value)) {
      text.remove_suffix(static_cast<std::size_t>(decode_last_utf8(text).bytes));
    }
    return std::string(text);
  }
  bool left;
  bool right;
};

std::unique_ptr<const Normalizer::Step> make_step(const std::string& type, const Json& json, const std::string& where) {
  static constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : kForms) {
    if (type == name) return std::make_unique<Form>(form);
  }
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Prepend") return std::make_unique<Prepend>(string_field(json, "prepend", where));
  if (type == "Replace") {
    return std::make_unique<Replace>(TextPattern(field(json, "pattern", where), place(where, "pattern")),
                                     string_field(json, "content", where));
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(field(json, "strip_left", where).as_bool(place(where, "strip_left")),
                                   field(json, "strip_right", where).as_bool(place(where, "strip_right")));
  }
  refuse_type(where, type, kKnown);
}

}  // namespace

void Normalizer::read(const Json& json, const std::string& where) {
  if (json.is_null()) return;
  const std::string type = type_field(json, where);
  if (type != "Sequence") {
    steps_.push_back(make_step(type, json, where));
    return;
  }
  const Json::Array& list = array_field(json, "normalizers", where);
  for (std::size_t i = 0; i < list.size(); ++i) read(list[i], place(place(where, "normalizers"), i));
}

std::string Normalizer::apply(std::string_view valid_utf8, RegexScratch& scratch) const {
  std::string text(valid_utf8);
  const std::size_t most_bytes =
      std::max(TextPattern::kMostGrowth * valid_utf8.size(), TextPattern::kGrowthAlwaysBytes);
  for (const auto& step : steps_) {
    text = step->apply(text, scratch);
    if (text.size() <= most_bytes) continue;
    fail(ErrorCode::bad_input,
         "tokenizer.json: normalizer: " + std::to_string(valid_utf8.size()) + " bytes of text became " +
             std::to_string(text.size()),
         "steps that replace text by text of similar length");
  }
  return text;
}

}  // namespace sluice::text
