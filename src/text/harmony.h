// The harmony format of GPT-OSS: a prompt made of messages with roles and channels, and an answer taken apart into
// them.
//
// Used by the chat command and the server for models whose tokenizer has the control tokens of the format; neither the
// name of the model nor its config.json matters. Prompts equal those of the openai-harmony package for conversations
// without tools; tools are described in TypeScript by the chat template of the checkpoint. Immutable but for
// HarmonyReader, which belongs to one answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace sluice::text {

// Ids of the control tokens.
struct HarmonyTokens {
  std::int32_t start = -1, end = -1, message = -1, channel = -1, constrain = -1, returns = -1, call = -1;
};

// nullopt unless the tokenizer has all of them, as special tokens.
std::optional<HarmonyTokens> harmony_tokens(const Tokenizer& tokenizer);

struct HarmonyOptions {
  std::string identity = "You are ChatGPT, a large language model trained by OpenAI.";
  std::string knowledge_cutoff = "2024-06";
  std::string current_date;  // "2025-06-28"; empty = not told
  std::string reasoning_effort = "medium";
  bool add_generation_prompt = true;
};

// A part of a prompt: a control token as the tokenizer spells it, or text in which such a spelling means nothing.
struct HarmonyPiece {
  bool control = false;
  std::string text;

  bool operator==(const HarmonyPiece&) const = default;
};

// `messages` as in the OpenAI API: role (system and developer become instructions), content, and for the assistant
// "thinking" (or "reasoning_content") and "tool_calls"; for a tool "name". Thoughts before the first finished answer
// are left out once the last turn of the assistant is finished. Throws Error(bad_input) naming the message.
std::vector<HarmonyPiece> render_harmony(const Json& messages, const HarmonyOptions& options);

std::vector<std::int32_t> encode_harmony(const std::vector<HarmonyPiece>& pieces, const Tokenizer& tokenizer);

struct HarmonyMessage {
  std::string channel;       // "analysis", "commentary", "final"; empty when the model named none
  std::string recipient;     // "functions.name" of a tool call
  std::string content_type;  // "<|constrain|>json"
  std::string content;

  bool operator==(const HarmonyMessage&) const = default;
};

// Whether a message is meant to be read by the user: an answer, or what is said before a tool call.
bool is_for_user(const HarmonyMessage& message);

// Takes the tokens of an answer to a prompt that ends with "<|start|>assistant". Lenient: what comes between messages
// is dropped, and an answer without any header is content without a channel.
class HarmonyReader {
 public:
  // Both must outlive the reader.
  HarmonyReader(const Tokenizer& tokenizer, const HarmonyTokens& tokens);

  // Text that this token adds to the content of the current message; its channel is that of current().
  std::string push(std::int32_t id);
  std::string finish();

  const HarmonyMessage& current() const { return current_; }
  const std::vector<HarmonyMessage>& messages() const { return messages_; }  // complete ones

 private:
  enum class State : std::uint8_t { header, content, between };

  std::string add_content(std::string text);
  void end_message();

  const Tokenizer& tokenizer_;
  const HarmonyTokens& tokens_;
  State state_ = State::header;
  std::string header_;
  std::optional<StreamDecoder> text_;
  HarmonyMessage current_;
  std::vector<HarmonyMessage> messages_;
};

// The parts of a header between <|start|> and <|message|>, for example
// "assistant<|channel|>commentary to=functions.f <|constrain|>json".
HarmonyMessage parse_harmony_header(std::string_view header);

}  // namespace sluice::text
