// The chat template of a checkpoint: turns a conversation into the text of a prompt.
//
// Used by the chat command and the server. Immutable after parsing; one object serves any number of threads. What a
// template sees is what transformers' apply_chat_template passes: messages, tools, documents, add_generation_prompt,
// the special tokens, and whatever else the request sets (enable_thinking, reasoning_effort, ...).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "text/jinja_template.h"

namespace sluice::text {

struct ChatOptions {
  Json tools;                            // array of tool definitions, or null: none
  Json documents;                        // array, or null
  bool add_generation_prompt = false;    // end with the opening of the assistant's turn
  std::optional<std::string> bos_token;  // undefined in the template when not set
  std::optional<std::string> eos_token;
  Json variables;      // object of further variables, or null; they replace those above
  jinja::Clock clock;  // for strftime_now; the local time when empty
  jinja::Limits limits;
};

class ChatTemplate {
 public:
  // `origin` names the template in messages, usually its path. Throws Error(bad_input) with line and construct.
  static ChatTemplate parse(std::string_view text, std::string origin) {
    return ChatTemplate(jinja::Template::parse(text, std::move(origin)));
  }

  // `messages` is an array of objects with role and content. Throws Error(bad_input) when the template fails or refuses
  // the conversation (raise_exception), Error(resources) when it exceeds a limit.
  std::string render(const Json& messages, const ChatOptions& options = {}) const;

  const std::string& origin() const { return template_.origin(); }

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}

  jinja::Template template_;
};

// The template of a checkpoint folder: chat_template.jinja, else "chat_template" of tokenizer_config.json (a string, or
// a list of named ones: "tool_use" when there are tools and it exists, else "default"), else chat_template.json.
// nullopt when the checkpoint has none; Error(bad_input) when it has one that cannot be used.
std::optional<ChatTemplate> load_chat_template(const std::string& model_dir, bool with_tools = false);

// Sets bos_token and eos_token from tokenizer_config.json (a string, or an object with "content"); leaves what it
// lacks.
void load_special_tokens(const std::string& model_dir, ChatOptions& options);

}  // namespace sluice::text
