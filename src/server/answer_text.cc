#include "server/answer_text.h"

#include <algorithm>
#include <utility>

namespace sluice::server {
namespace {

constexpr std::pair<const char*, const char*> kMarkers[] = {
    {"<think>", "</think>"},
    {"◁think▷", "◁/think▷"},
};

}  // namespace

ThoughtTokens ThoughtTokens::of(const text::Tokenizer& tokenizer) {
  ThoughtTokens tokens;
  tokens.harmony = text::harmony_tokens(tokenizer);
  for (const auto& [begin, end] : kMarkers) {
    if (!tokenizer.token_id(begin) || !tokenizer.token_id(end)) continue;
    tokens.begin = tokenizer.token_id(begin);
    tokens.end = tokenizer.token_id(end);
    break;
  }
  return tokens;
}

bool ThoughtTokens::opened_by(const std::vector<std::int32_t>& prompt) const {
  if (!begin) return false;
  for (auto token = prompt.rbegin(); token != prompt.rend(); ++token) {
    if (*token == *begin) return true;
    if (*token == *end) return false;
  }
  return false;
}

AnswerText::AnswerText(const text::Tokenizer& tokenizer, const ThoughtTokens& thoughts, const TextRules& rules,
                       bool begins_in_thought)
    : tokenizer_(tokenizer),
      thoughts_(thoughts),
      rules_(rules),
      in_thought_(begins_in_thought && rules.separate_thoughts),
      thought_matcher_(rules.stops),
      content_matcher_(rules.stops),
      thought_at_start_(in_thought_) {
  if (rules.harmony && thoughts.harmony) {
    harmony_.emplace(tokenizer, *thoughts.harmony);
  } else {
    decoder_.emplace(tokenizer, rules.skip_special);
  }
}

AnswerText::Piece AnswerText::decode_harmony(std::int32_t token) {
  // The message that the text belongs to may end with this token.
  const bool thought = !text::is_for_user(harmony_->current());
  std::string text = harmony_->push(token);
  in_thought_ = !text::is_for_user(harmony_->current());
  return thought ? Piece{std::move(text), ""} : Piece{"", std::move(text)};
}

AnswerText::Piece AnswerText::decode(std::int32_t token) {
  if (harmony_) return decode_harmony(token);
  const bool marker =
      rules_.separate_thoughts && thoughts_.begin && token == (in_thought_ ? *thoughts_.end : *thoughts_.begin);
  std::string text = marker ? decoder_->flush() : decoder_->push(token);
  Piece piece = in_thought_ ? Piece{std::move(text), ""} : Piece{"", std::move(text)};
  if (marker) {
    in_thought_ = !in_thought_;
    (in_thought_ ? thought_at_start_ : content_at_start_) = true;
    decoder_.emplace(tokenizer_, rules_.skip_special);
  }
  return piece;
}

AnswerText::Piece AnswerText::rest() {
  if (!harmony_) return in_thought_ ? Piece{decoder_->flush(), ""} : Piece{"", decoder_->flush()};
  const bool thought = !text::is_for_user(harmony_->current());
  return thought ? Piece{harmony_->finish(), ""} : Piece{"", harmony_->finish()};
}

std::string AnswerText::match(text::StopMatcher& matcher, bool& at_start, const std::string& text) {
  if (stop_ || text.empty()) return "";
  std::string_view shown = text;
  if (at_start) {
    shown.remove_prefix(std::min(shown.find_first_not_of('\n'), shown.size()));
    at_start = shown.empty();
  }
  if (tokens_ <= rules_.least_tokens) return std::string(shown);
  std::string certain = matcher.push(shown);
  if (matcher.found()) {
    stop_ = rules_.stops[static_cast<std::size_t>(matcher.found_index())];
    if (rules_.keep_stop) certain += *stop_;
  }
  return certain;
}

AnswerText::Piece AnswerText::match(const Piece& piece) {
  Piece out;
  out.thought = match(thought_matcher_, thought_at_start_, piece.thought);
  out.content = match(content_matcher_, content_at_start_, piece.content);
  return out;
}

AnswerText::Piece AnswerText::push(std::int32_t token) {
  const bool was_thought = in_thought_;
  ++tokens_;
  Piece out = match(decode(token));
  if (was_thought && !in_thought_ && !stop_) out.thought += thought_matcher_.flush();
  return out;
}

AnswerText::Piece AnswerText::finish() {
  if (stop_) return {};
  Piece out = match(rest());
  if (stop_) return out;
  out.thought += thought_matcher_.flush();
  out.content += content_matcher_.flush();
  return out;
}

}  // namespace sluice::server
