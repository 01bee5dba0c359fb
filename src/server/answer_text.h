// From the tokens of one answer to the text that a client sees: whole characters only, thoughts apart from what is
// said, cut at stop strings.
//
// One for each choice of a request; used by the loop's thread. Thoughts are told apart by the control tokens of the
// tokenizer (a pair like <think> and </think>, or the channels of the harmony format), never by the name of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/harmony.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace sluice::server {

// What the tokenizer has to mark thoughts with. Made once for a model.
struct ThoughtTokens {
  std::optional<std::int32_t> begin, end;
  std::optional<text::HarmonyTokens> harmony;

  static ThoughtTokens of(const text::Tokenizer& tokenizer);
  // Whether the answer to this prompt begins inside a thought: its template has opened one.
  bool opened_by(const std::vector<std::int32_t>& prompt) const;
};

struct TextRules {
  std::vector<std::string> stops;
  std::int64_t least_tokens = 0;  // stops are not looked for in the text of so many tokens
  bool keep_stop = false;         // the stop string stays at the end of the text
  bool skip_special = true;
  bool separate_thoughts = false;
  bool harmony = false;  // the prompt ended with the opening of an assistant's message in the harmony format
};

class AnswerText {
 public:
  struct Piece {
    std::string thought;
    std::string content;
    bool empty() const { return thought.empty() && content.empty(); }
  };

  // `tokenizer` and `thoughts` outlive this.
  AnswerText(const text::Tokenizer& tokenizer, const ThoughtTokens& thoughts, const TextRules& rules,
             bool begins_in_thought);

  Piece push(std::int32_t token);  // text that is certain now
  Piece finish();                  // the rest, once no token follows
  bool stopped() const { return stop_.has_value(); }
  const std::string& stop() const { return *stop_; }  // the string that ended the answer
  bool in_thought() const { return in_thought_; }

 private:
  Piece decode(std::int32_t token);
  Piece decode_harmony(std::int32_t token);
  Piece rest();
  std::string match(text::StopMatcher& matcher, bool& at_start, const std::string& text);
  Piece match(const Piece& piece);

  const text::Tokenizer& tokenizer_;
  const ThoughtTokens& thoughts_;
  TextRules rules_;
  bool in_thought_;
  std::optional<text::StreamDecoder> decoder_;  // made anew after a marker
  std::optional<text::HarmonyReader> harmony_;
  text::StopMatcher thought_matcher_;
  text::StopMatcher content_matcher_;
  bool thought_at_start_;  // line ends next to a marker are no text
  bool content_at_start_ = false;
  std::optional<std::string> stop_;
  std::int64_t tokens_ = 0;  // pushed
};

}  // namespace sluice::server
