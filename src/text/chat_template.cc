#include "text/chat_template.h"

#include <ctime>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/file.h"

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return parts;
}

void put(Json::Object& variables, const std::string& name, Json value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

// A link that leads nowhere counts as absent.
bool present(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

std::string read_text(const fs::path& path) { return read_file(path.string(), {"a chat template", 16 << 20}); }

// The template in the "chat_template" field of a configuration, with its name for messages.
struct Found {
  std::string text;
  std::string origin;
};

std::optional<Found> named_template(const Json& list, const std::string& name, const std::string& where) {
  for (const Json& entry : list.as_array(where)) {
    const Json* entry_name = entry.find("name");
    if (entry_name == nullptr || !entry_name->is_string() || entry_name->as_string(where) != name) continue;
    const Json* text = entry.find("template");
    if (text == nullptr) fail(ErrorCode::bad_input, where + ": the entry \"" + name + "\" has no field \"template\"");
    return Found{text->as_string(where + ": template"), where + " \"" + name + "\""};
  }
  return std::nullopt;
}

std::optional<Found> template_in(const fs::path& path, bool with_tools) {
  if (!present(path)) return std::nullopt;
  const Json config = Json::parse_file(path.string());
  const Json* field = config.find("chat_template");
  if (field == nullptr || field->is_null()) return std::nullopt;
  const std::string where = path.string() + ": chat_template";
  if (field->is_string()) return Found{field->as_string(where), where};
  if (with_tools) {
    if (auto found = named_template(*field, "tool_use", where)) return found;
  }
  if (auto found = named_template(*field, "default", where)) return found;
  fail(ErrorCode::bad_input, where + " has no entry named \"default\"",
       "a string, or a list with an entry \"default\"");
}

}  // namespace

std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  Json::Object variables;
  put(variables, "messages", messages);
  put(variables, "tools", options.tools);
  put(variables, "documents", options.documents);
  put(variables, "add_generation_prompt", Json(options.add_generation_prompt));
  if (options.bos_token) put(variables, "bos_token", Json(*options.bos_token));
  if (options.eos_token) put(variables, "eos_token", Json(*options.eos_token));
  if (!options.variables.is_null()) {
    for (const auto& [name, value] : options.variables.as_object("chat template variables")) {
      put(variables, name, value);
    }
  }
  const jinja::Clock clock = options.clock ? options.clock : jinja::Clock(local_time);
  return template_.render(Json(std::move(variables)), clock, options.limits);
}

std::optional<ChatTemplate> load_chat_template(const std::string& model_dir, bool with_tools) {
  const fs::path dir(model_dir);
  const fs::path plain = dir / "chat_template.jinja";
  if (present(plain)) return ChatTemplate::parse(read_text(plain), plain.string());
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    if (const auto found = template_in(dir / name, with_tools)) {
      return ChatTemplate::parse(found->text, found->origin);
    }
  }
  return std::nullopt;
}

void load_special_tokens(const std::string& model_dir, ChatOptions& options) {
  const fs::path path = fs::path(model_dir) / "tokenizer_config.json";
  if (!present(path)) return;
  const Json config = Json::parse_file(path.string());
  const auto token = [&](const char* name) -> std::optional<std::string> {
    const std::string where = path.string() + ": " + name;
    const Json* field = config.find(name);
    if (field != nullptr && field->is_object()) field = field->find("content");
    if (field == nullptr || field->is_null()) return std::nullopt;
    return field->as_string(where);
  };
  if (auto bos = token("bos_token")) options.bos_token = std::move(bos);
  if (auto eos = token("eos_token")) options.eos_token = std::move(eos);
}

}  // namespace sluice::text
