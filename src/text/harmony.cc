#include "text/harmony.h"

#include <utility>

namespace sluice::text {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kSpaces = " \t\r\n";

// Takes the first word off; empty at the end.
std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  return word;
}

// A content type may follow without a space.
std::string with_space_before_types(std::string_view text) {
  std::string out(text);
  const std::size_t at = out.find(kConstrain);
  if (at != std::string::npos) out.insert(at, " ");
  return out;
}

}  // namespace

std::optional<HarmonyTokens> harmony_tokens(const Tokenizer& tokenizer) {
  HarmonyTokens t;
  const std::pair<std::int32_t*, std::string_view> names[] = {
      {&t.start, "<|start|>"},    {&t.end, "<|end|>"},        {&t.message, "<|message|>"}, {&t.channel, kChannel},
      {&t.constrain, kConstrain}, {&t.returns, "<|return|>"}, {&t.call, "<|call|>"},
  };
  for (const auto& [id, name] : names) {
    const std::optional<std::int32_t> found = tokenizer.token_id(name);
    if (!found || !tokenizer.is_special(*found)) return std::nullopt;
    *id = *found;
  }
  return t;
}

HarmonyMessage parse_harmony_header(std::string_view header) {
  HarmonyMessage out;
  std::string rest(header);
  const std::size_t mark = rest.find(kChannel);
  if (mark != std::string::npos) {
    const std::size_t begin = mark + kChannel.size();
    const std::size_t end = std::min(rest.find_first_of(" \t\r\n<", begin), rest.size());
    out.channel = rest.substr(begin, end - begin);
    rest.erase(mark, end - mark);
  }
  rest = with_space_before_types(rest);
  std::string_view left = rest;
  for (std::string_view word = next_word(left); !word.empty(); word = next_word(left)) {
    constexpr std::string_view kTo = "to=";
    if (word.substr(0, kTo.size()) == kTo) {
      out.recipient = word.substr(kTo.size());
    } else if (word != "assistant") {
      out.content_type = word;
    }
  }
  return out;
}

bool is_for_user(const HarmonyMessage& message) { return message.channel != "analysis" && message.recipient.empty(); }

HarmonyReader::HarmonyReader(const Tokenizer& tokenizer, const HarmonyTokens& tokens)
    : tokenizer_(tokenizer), tokens_(tokens) {}

std::string HarmonyReader::add_content(std::string text) {
  current_.content += text;
  return text;
}

void HarmonyReader::end_message() {
  messages_.push_back(std::move(current_));
  current_ = {};
  header_.clear();
  text_.reset();
  state_ = State::between;
}

std::string HarmonyReader::push(std::int32_t id) {
  const bool ends = id == tokens_.end || id == tokens_.returns || id == tokens_.call;
  if (state_ == State::between) {
    if (id == tokens_.start) state_ = State::header;
    return "";
  }
  if (state_ == State::header) {
    if (id != tokens_.message && !ends) {
      header_ += tokenizer_.token_text(id);
      return "";
    }
    if (id == tokens_.message) {
      current_ = parse_harmony_header(header_);
      text_.emplace(tokenizer_, /*skip_special=*/false);
      state_ = State::content;
      return "";
    }
    return finish();  // no header after all
  }
  if (!ends) return add_content(text_->push(id));
  std::string rest = add_content(text_->flush());
  end_message();
  return rest;
}

std::string HarmonyReader::finish() {
  std::string rest;
  if (state_ == State::content) rest = add_content(text_->flush());
  if (state_ == State::header && !header_.empty()) rest = add_content(header_);
  if (state_ == State::content || !current_.content.empty()) end_message();
  return rest;
}

}  // namespace sluice::text
