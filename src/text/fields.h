// Reading the objects of tokenizer files, with errors that name file and field.
//
// Used by the loaders of this folder. `where` is the path of the object, for example
// "models/x/tokenizer.json: pre_tokenizer.pretokenizers[0]"; `place(where, key)` is that of a member. Stateless.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace sluice::text {

std::string place(const std::string& where, std::string_view key);
std::string place(const std::string& where, std::size_t index);

// The member `key`; throws Error(bad_input) when it is absent.
const Json& field(const Json& object, std::string_view key, const std::string& where);
const std::string& string_field(const Json& object, std::string_view key, const std::string& where);
const Json::Array& array_field(const Json& object, std::string_view key, const std::string& where);
// Absent and null both mean the default.
bool bool_field(const Json& object, std::string_view key, const std::string& where, bool absent);

// The "type" of an object of the file. A null value has the type "".
std::string type_field(const Json& object, const std::string& where);

// A string that is exactly one character.
char32_t char_field(const Json& object, std::string_view key, const std::string& where);

// Throws Error(unsupported) for a component that this library does not have, naming it and those it has.
[[noreturn]] void refuse_type(const std::string& where, const std::string& type, const std::string& known);

}  // namespace sluice::text
