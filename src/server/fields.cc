#include "server/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "server/api_error.h"

namespace sluice::server {
namespace {

constexpr std::size_t kMostNameBytes = 100;

// The field of the first integer that a message like "... integer 9223372036854775808 does not fit ..." is about; empty
// in a list.
std::string name_of_integer(const std::string& body, const std::string& message) {
  constexpr std::string_view kBefore = "integer ";
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = message.find(kBefore) + kBefore.size();
  const std::size_t number = body.find(message.substr(begin, message.find(' ', begin) - begin));
  if (number == std::string::npos || number == 0) return "";
  const std::size_t colon = body.find_last_not_of(kBlank, number - 1);
  if (colon == std::string::npos || colon == 0 || body[colon] != ':') return "";
  const std::size_t end = body.find_last_not_of(kBlank, colon - 1);
  if (end == std::string::npos || end == 0 || body[end] != '"') return "";
  const std::size_t quote = body.rfind('"', end - 1);
  return quote == std::string::npos ? "" : body.substr(quote + 1, std::min(end - quote - 1, kMostNameBytes));
}

}  // namespace

Json parse_body(const std::string& body) {
  try {
    return Json::parse(body, "body");
  } catch (const Error& e) {
    const std::string message = e.what();
    if (message.find("does not fit in 64 bits") == std::string::npos) throw ApiError(400, message, "", "invalid_json");
    throw ApiError(400, message, name_of_integer(body, message), "invalid_value");
  }
}

Fields::Fields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  const std::string name = prefix_.substr(0, prefix_.find_last_of('.'));  // "sampling_params." > "sampling_params"
  throw ApiError(400,
                 fmt::format("the {} is {}; expected a JSON object", name.empty() ? "body" : name, object.type_name()),
                 name, "invalid_value");
}

void Fields::bad(const char* name, const std::string& what) const {
  throw ApiError(400, fmt::format("{}{}: {}", prefix_, name, what), prefix_ + name, "invalid_value");
}

const Json* Fields::find(const char* name) const {
  const Json* field = object_.find(name);
  return field == nullptr || field->is_null() ? nullptr : field;
}

std::optional<bool> Fields::flag(const char* name) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_bool()) bad(name, fmt::format("found {}; expected true or false", field->type_name()));
  return field->as_bool(name);
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t least, std::int64_t most) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) bad(name, fmt::format("found {}; expected an integer", field->type_name()));
  const double value = field->as_number(name);
  if (!field->is_int() && (std::abs(value) > 9e15 || value != std::trunc(value))) {
    bad(name, fmt::format("{} is no integer", value));
  }
  const std::int64_t whole = field->as_int(name);
  if (whole < least || whole > most) bad(name, fmt::format("{} is not in {} to {}", whole, least, most));
  return whole;
}

std::optional<double> Fields::number(const char* name, double least, double most) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) bad(name, fmt::format("found {}; expected a number", field->type_name()));
  const double value = field->as_number(name);
  if (!(value >= least && value <= most)) bad(name, fmt::format("{} is not in {} to {}", value, least, most));
  return value;
}

std::optional<std::string> Fields::text(const char* name) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) bad(name, fmt::format("found {}; expected a string", field->type_name()));
  return field->as_string(name);
}

std::vector<std::string> Fields::texts(const char* name, std::size_t most) const {
  const Json* field = find(name);
  if (field == nullptr) return {};
  if (field->is_string()) return {field->as_string(name)};
  if (!field->is_array()) bad(name, fmt::format("found {}; expected a string or a list of them", field->type_name()));
  std::vector<std::string> list;
  for (const Json& entry : field->as_array(name)) {
    if (!entry.is_string()) bad(name, fmt::format("found {} in the list; expected strings", entry.type_name()));
    list.push_back(entry.as_string(name));
  }
  if (list.size() > most) bad(name, fmt::format("{} entries; at most {}", list.size(), most));
  return list;
}

std::vector<std::int64_t> Fields::integers(const char* name, std::size_t most) const {
  const Json* field = find(name);
  if (field == nullptr) return {};
  if (field->is_int()) return {field->as_int(name)};
  if (!field->is_array()) bad(name, fmt::format("found {}; expected a list of integers", field->type_name()));
  std::vector<std::int64_t> list;
  for (const Json& entry : field->as_array(name)) {
    if (!entry.is_int()) bad(name, fmt::format("found {} in the list; expected integers", entry.type_name()));
    list.push_back(entry.as_int(name));
  }
  if (list.size() > most) bad(name, fmt::format("{} entries; at most {}", list.size(), most));
  return list;
}

void Fields::refuse_others(std::span<const std::string_view> names) const {
  for (const auto& [name, value] : object_.as_object("")) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      bad(name.substr(0, kMostNameBytes).c_str(), "is not known");
    }
  }
}

void Fields::refuse(const char* name, const char* why, std::optional<double> neutral, bool empty_asks) const {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (field->is_bool() && !field->as_bool(name)) return;
  if (field->is_array() && field->as_array(name).empty()) return;
  if (field->is_object() && field->as_object(name).empty() && !empty_asks) return;
  if (field->is_string() && field->as_string(name).empty()) return;
  if (neutral && field->is_number() && field->as_number(name) == *neutral) return;
  throw ApiError(400, fmt::format("{}{} is not supported: {}", prefix_, name, why), prefix_ + name, "unsupported");
}

}  // namespace sluice::server
