// POST /v1/chat/completions: messages > prompt, fields > Ask.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "core/error.h"
#include "server/api_error.h"
#include "server/openai.h"
#include "text/harmony.h"

namespace sluice::server {
namespace {

constexpr std::int64_t kMostTopLogprobs = 20;
constexpr std::size_t kMostMessages = 10000;
constexpr std::size_t kMostShown = 100;
// Of the template, which the request has a field for or the model decides.
constexpr std::array<std::string_view, 8> kReserved = {
    "messages",  "tools",     "documents",       "add_generation_prompt",
    "bos_token", "eos_token", "raise_exception", "strftime_now"};
constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};

[[noreturn]] void bad_message(std::size_t index, const std::string& what) {
  throw ApiError(400, fmt::format("messages[{}]: {}", index, what), fmt::format("messages[{}]", index),
                 "invalid_value");
}

// A list of parts as one text; templates of text models know strings only.
Json joined_parts(const Json::Array& parts, std::size_t index) {
  std::string all;
  for (const Json& part : parts) {
    const Json* type = part.find("type");
    const std::string kind = type != nullptr && type->is_string() ? type->as_string("type") : "";
    const Json* text = part.find(kind == "refusal" ? "refusal" : "text");  // what the model once said
    if (kind != "text" && kind != "refusal") {
      bad_message(index, fmt::format("a content part of type \"{}\" is not supported: there is text only",
                                     kind.substr(0, kMostShown)));
    }
    if (text == nullptr || !text->is_string()) bad_message(index, "a content part of type " + kind + " has no text");
    if (!all.empty()) all += '\n';
    all += text->as_string("text");
  }
  return Json(all);
}

Json checked_message(const Json& message, std::size_t index) {
  if (!message.is_object()) bad_message(index, fmt::format("found {}; expected an object", message.type_name()));
  const Json* role = message.find("role");
  if (role == nullptr || !role->is_string()) bad_message(index, "no role; expected a string");
  const std::string& speaker = role->as_string("role");
  if (std::find(kRoles.begin(), kRoles.end(), speaker) == kRoles.end()) {
    bad_message(index, "the role is \"" + speaker.substr(0, kMostShown) +
                           "\"; expected system, developer, user, assistant, tool or function");
  }
  const Json* content = message.find("content");
  const bool assistant = speaker == "assistant";
  if ((content == nullptr || content->is_null()) && !assistant) bad_message(index, "no content");
  Json::Object out;
  for (const auto& [name, value] : message.as_object("message")) {
    if (name == "audio" && !value.is_null()) bad_message(index, "audio is not supported: there is text only");
    if (name != "content") {
      out.emplace_back(name, value);
    } else if (value.is_array()) {
      out.emplace_back(name, joined_parts(value.as_array("content"), index));
    } else if (value.is_string() || value.is_null()) {
      out.emplace_back(name, value.is_null() ? Json("") : value);
    } else {
      bad_message(index, fmt::format("content is {}; expected a string or a list of parts", value.type_name()));
    }
  }
  return Json(std::move(out));
}

Json checked_messages(const Fields& body) {
  const Json* field = body.find("messages");
  if (field == nullptr) body.bad("messages", "missing; expected a list of messages");
  if (!field->is_array() || field->as_array("messages").empty()) body.bad("messages", "expected a list of messages");
  const Json::Array& list = field->as_array("messages");
  if (list.size() > kMostMessages) body.bad("messages", fmt::format("{}; at most {}", list.size(), kMostMessages));
  Json::Array out;
  for (std::size_t i = 0; i < list.size(); ++i) out.push_back(checked_message(list[i], i));
  return Json(std::move(out));
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// What the template gets beside the messages.
Json template_variables(const Fields& body) {
  Json::Object variables;
  if (const auto effort = body.text("reasoning_effort")) variables.emplace_back("reasoning_effort", Json(*effort));
  if (const Json* more = body.find("chat_template_kwargs")) {
    if (!more->is_object()) body.bad("chat_template_kwargs", "expected an object");
    for (const auto& [name, value] : more->as_object("")) {
      if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
        body.bad("chat_template_kwargs", fmt::format("\"{}\" is not for a request to set there", name));
      }
      variables.emplace_back(name, value);
    }
  }
  return variables.empty() ? Json() : Json(std::move(variables));
}

std::optional<std::string> spelled(const text::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  if (!id) return std::nullopt;
  return std::string(tokenizer.token(*id));
}

RenderedChat render_by_template(const Fields& body, const ServedModel& m, const Json& messages) {
  const text::ChatTemplate* chat = m.chat_template;
  if (chat == nullptr) {
    throw ApiError(400, "this model has no chat template; use /v1/completions with a plain prompt", "messages",
                   "unsupported");
  }
  text::ChatOptions options;
  options.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
  options.bos_token = spelled(m.tokenizer, m.tokenizer.bos_id());
  options.eos_token = spelled(m.tokenizer, m.tokenizer.eos_id());
  options.variables = template_variables(body);
  RenderedChat out;
  out.text = chat->render(messages, options);
  const bool add_special = body.flag("add_special_tokens").value_or(false);
  out.ids = encode(m, out.text, add_special, /*parse_special=*/true, "messages");
  return out;
}

RenderedChat render_by_harmony(const Fields& body, const ServedModel& m, const Json& messages) {
  text::HarmonyOptions options;
  options.current_date = today();
  const Json variables = template_variables(body);  // of which the effort alone has a meaning here
  if (const Json* effort = variables.find("reasoning_effort")) {
    if (!effort->is_string()) body.bad("reasoning_effort", "expected a string");
    options.reasoning_effort = effort->as_string("reasoning_effort");
  }
  options.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
  const auto pieces = text::render_harmony(messages, options);
  RenderedChat out;
  for (const text::HarmonyPiece& piece : pieces) out.text += piece.text;
  encode(m, out.text, false, false, "messages");  // refuses what is far too long
  out.ids = text::encode_harmony(pieces, m.tokenizer);
  out.harmony = true;
  return out;
}

void refuse_tools(const Fields& body) {
  constexpr const char* kNoParser = "there is no parser of tool calls for this model";
  const Json* choice = body.find("tool_choice");
  const std::string word = choice != nullptr && choice->is_string() ? choice->as_string("tool_choice") : "";
  if (word != "none") body.refuse("tools", kNoParser);
  body.refuse("functions", kNoParser);
  if (choice != nullptr && word != "none" && word != "auto") {
    body.bad("tool_choice", "asks for a call of a tool, and there are no tools; expected none or auto");
  }
  const Json* call = body.find("function_call");
  if (call != nullptr && !(call->is_string() && (call->as_string("") == "none" || call->as_string("") == "auto"))) {
    body.bad("function_call", "asks for a call of a function, and there are none; expected none or auto");
  }
  const Json* modalities = body.find("modalities");
  if (modalities != nullptr) {
    for (const std::string& modality : body.texts("modalities", 8)) {
      if (modality != "text") body.bad("modalities", "there is text only");
    }
  }
}

void read_logprobs(const Fields& body, Ask& ask) {
  ask.logprobs = body.flag("logprobs").value_or(false);
  const std::int64_t top = body.integer("top_logprobs", 0, kMostTopLogprobs).value_or(0);
  if (top > 0 && !ask.logprobs) body.bad("top_logprobs", "needs logprobs: true");
  ask.request.top_logprobs = static_cast<std::int32_t>(top);
}

}  // namespace

RenderedChat render_chat(const Fields& body, const ServedModel& m) {
  refuse_tools(body);
  for (const char* name : {"chat_template", "documents", "continue_final_message"}) {
    body.refuse(name, "the model's own template is rendered, and gets chat_template_kwargs");
  }
  const Json messages = checked_messages(body);
  try {
    return m.thoughts.harmony ? render_by_harmony(body, m, messages) : render_by_template(body, m, messages);
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "messages", "invalid_value");
  }
}

Ask read_chat(const Json& json, const ServedModel& m, Random& random) {
  const Fields body(json);
  Ask ask;
  ask.model = checked_model(body, m);
  refuse_unsupported(body);
  refuse_all(body, std::array{"prompt", "input_ids"}, "stands beside messages; expected one of them");
  refuse_all(body, std::array{"sampling_params"}, "is a field of /generate; here its fields stand in the body itself");
  ask.id = read_id(body, "chatcmpl-", random);
  ask.created = unix_time();
  ask.n = body.integer("n", 1, kMostAnswers).value_or(1);
  refuse_best_of(body, ask.n);
  read_sampling(body, m, random, ask);
  read_scheduling(body, ask);
  read_logprobs(body, ask);
  read_stream(body, ask);
  body.refuse("echo", "an answer does not repeat the last message");
  RenderedChat chat = render_chat(body, m);
  ask.rules.harmony = chat.harmony;
  if (chat.harmony) {
    ask.request.stop_ids.insert(ask.request.stop_ids.end(), {m.thoughts.harmony->returns, m.thoughts.harmony->call});
  }
  ask.rules.separate_thoughts = body.flag("separate_reasoning").value_or(true);
  ask.prompts.push_back({std::move(chat.ids), std::move(chat.text)});
  read_lengths(body, m, std::nullopt, ask);
  return ask;
}

}  // namespace sluice::server
