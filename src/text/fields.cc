#include "text/fields.h"

#include "core/error.h"
#include "text/unicode.h"

namespace sluice::text {

std::string place(const std::string& where, std::string_view key) {
  const bool file_only = where.find(": ") == std::string::npos;
  return where + (file_only ? ": " : ".") + std::string(key);
}

std::string place(const std::string& where, std::size_t index) { return where + "[" + std::to_string(index) + "]"; }

const Json& field(const Json& object, std::string_view key, const std::string& where) {
  object.as_object(where);
  const Json* value = object.find(key);
  if (value == nullptr) fail(ErrorCode::bad_input, place(where, key) + ": missing");
  return *value;
}

const std::string& string_field(const Json& object, std::string_view key, const std::string& where) {
  return field(object, key, where).as_string(place(where, key));
}

const Json::Array& array_field(const Json& object, std::string_view key, const std::string& where) {
  return field(object, key, where).as_array(place(where, key));
}

bool bool_field(const Json& object, std::string_view key, const std::string& where, bool absent) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? absent : value->as_bool(place(where, key));
}

std::string type_field(const Json& object, const std::string& where) {
  return object.is_null() ? "" : string_field(object, "type", where);
}

char32_t char_field(const Json& object, std::string_view key, const std::string& where) {
  const std::string& text = string_field(object, key, where);
  if (text.empty() || static_cast<std::size_t>(decode_utf8(text).bytes) != text.size()) {
    fail(ErrorCode::bad_input, place(where, key) + ": \"" + text + "\"", "one character");
  }
  return decode_utf8(text).value;
}

void refuse_type(const std::string& where, const std::string& type, const std::string& known) {
  fail(ErrorCode::unsupported, where + ": type \"" + type + "\" is not supported", known,
       "convert the tokenizer to one of these");
}

}  // namespace sluice::text
