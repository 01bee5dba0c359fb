#include <algorithm>

#include "core/error.h"
#include "text/harmony.h"

namespace sluice::text {
namespace {

// What a message of the conversation becomes.
struct Part {
  std::string role;       // "assistant", "functions.name"
  std::string recipient;  // empty = none
  std::string channel;
  std::string content_type;
  std::string content;
  bool is_call = false;
};

std::string where(std::size_t index) { return "messages[" + std::to_string(index) + "]"; }

std::string text_of(const Json& message, std::string_view key, const std::string& place) {
  const Json* value = message.find(key);
  if (value == nullptr || value->is_null()) return "";
  return value->as_string(place + "." + std::string(key));
}

std::string role_of(const Json& message, const std::string& place) {
  std::string role = text_of(message, "role", place);
  for (const char* known : {"system", "developer", "user", "assistant", "tool"}) {
    if (role == known) return role;
  }
  fail(ErrorCode::bad_input, place + ": role \"" + role + "\"", "system, developer, user, assistant or tool");
}

std::string system_text(const HarmonyOptions& o) {
  std::string text = o.identity + "\nKnowledge cutoff: " + o.knowledge_cutoff;
  if (!o.current_date.empty()) text += "\nCurrent date: " + o.current_date;
  text += "\n\nReasoning: " + o.reasoning_effort;
  return text + "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.";
}

Part call_part(const Json& call, const std::string& place) {
  const Json* function = call.find("function");
  const Json& f = function != nullptr ? *function : call;
  const Json* arguments = f.find("arguments");
  Part part;
  part.role = "assistant";
  part.recipient = "functions." + text_of(f, "name", place);
  part.channel = "commentary";
  part.content_type = "<|constrain|>json";
  if (arguments != nullptr) part.content = arguments->is_string() ? arguments->as_string(place) : arguments->dump();
  part.is_call = true;
  return part;
}

void add_assistant(const Json& message, const std::string& place, std::vector<Part>& parts) {
  std::string thoughts = text_of(message, "thinking", place);
  if (thoughts.empty()) thoughts = text_of(message, "reasoning_content", place);
  if (!thoughts.empty()) parts.push_back({"assistant", "", "analysis", "", thoughts});
  const Json* calls = message.find("tool_calls");
  const std::string content = text_of(message, "content", place);
  const bool has_calls = calls != nullptr && !calls->is_null();
  if (!content.empty() || !has_calls) {
    parts.push_back({"assistant", "", has_calls ? "commentary" : "final", "", content});
  }
  if (!has_calls) return;
  for (const Json& call : calls->as_array(place + ".tool_calls")) {
    parts.push_back(call_part(call, place + ".tool_calls"));
  }
}

// The call that a tool's message answers: by name, else the last one.
std::string caller_of(const Json& message, const std::string& place, const std::vector<Part>& parts) {
  const std::string name = text_of(message, "name", place);
  if (!name.empty()) return "functions." + name;
  const auto call = std::find_if(parts.rbegin(), parts.rend(), [](const Part& p) { return p.is_call; });
  if (call == parts.rend()) {
    fail(ErrorCode::bad_input, place + ": a tool's answer without a call before it", "a name, or tool_calls before it");
  }
  return call->recipient;
}

std::vector<Part> parts_of(const Json& messages) {
  std::vector<Part> parts;
  const Json::Array& list = messages.as_array("messages");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = where(i);
    const std::string role = role_of(list[i], place);
    if (role == "assistant") {
      add_assistant(list[i], place, parts);
    } else if (role == "tool") {
      parts.push_back(
          {caller_of(list[i], place, parts), "assistant", "commentary", "", text_of(list[i], "content", place)});
    } else if (role == "user") {
      parts.push_back({"user", "", "", "", text_of(list[i], "content", place)});
    } else {
      parts.push_back({"developer", "", "", "", "# Instructions\n\n" + text_of(list[i], "content", place)});
    }
  }
  return parts;
}

void drop_old_thoughts(std::vector<Part>& parts) {
  const auto is_final = [](const Part& p) { return p.channel == "final"; };
  const auto last = std::find_if(parts.rbegin(), parts.rend(), [](const Part& p) { return p.role == "assistant"; });
  if (last == parts.rend() || !is_final(*last)) return;
  const auto first_final = std::find_if(parts.begin(), parts.end(), is_final);
  parts.erase(std::remove_if(parts.begin(), first_final, [](const Part& p) { return p.channel == "analysis"; }),
              first_final);
}

class Writer {
 public:
  void control(std::string_view token) { pieces_.push_back({true, std::string(token)}); }
  void text(const std::string& s) {
    if (!s.empty()) pieces_.push_back({false, s});
  }

  void part(const Part& p) {
    constexpr std::string_view kConstrain = "<|constrain|>";
    control("<|start|>");
    text(p.role + (p.recipient.empty() ? "" : " to=" + p.recipient));
    if (!p.channel.empty()) {
      control("<|channel|>");
      text(p.channel + (p.content_type.empty() ? "" : " "));
    }
    if (!p.content_type.empty()) {
      control(kConstrain);
      text(p.content_type.substr(kConstrain.size()));
    }
    control("<|message|>");
    text(p.content);
    control(p.is_call ? "<|call|>" : "<|end|>");
  }

  std::vector<HarmonyPiece> take() { return std::move(pieces_); }

 private:
  std::vector<HarmonyPiece> pieces_;
};

}  // namespace

std::vector<HarmonyPiece> render_harmony(const Json& messages, const HarmonyOptions& options) {
  std::vector<Part> parts = parts_of(messages);
  drop_old_thoughts(parts);
  Writer writer;
  writer.part({"system", "", "", "", system_text(options)});
  for (const Part& part : parts) writer.part(part);
  if (options.add_generation_prompt) {
    writer.control("<|start|>");
    writer.text("assistant");
  }
  return writer.take();
}

std::vector<std::int32_t> encode_harmony(const std::vector<HarmonyPiece>& pieces, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const HarmonyPiece& piece : pieces) {
    const std::vector<std::int32_t> more =
        tokenizer.encode(piece.text, /*add_special_tokens=*/false, /*parse_special=*/piece.control);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace sluice::text
