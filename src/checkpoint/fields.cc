#include "checkpoint/fields.h"

#include <fmt/core.h>

#include <utility>

#include "checkpoint/mapped_file.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

std::string spelled(Keys keys) {
  std::string out;
  for (const std::string_view key : keys) out += (out.empty() ? "" : " or ") + std::string(key);
  return out;
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_number("") == b.as_number("");
  return a.dump() == b.dump();
}

std::int64_t checked_int(const Json& value, const std::string& where, IntRange range) {
  const std::int64_t v = value.as_int(where);
  if (v < range.min || v > range.max) {
    fail(ErrorCode::bad_input, fmt::format("{}: found {}", where, v),
         fmt::format("an integer from {} to {}", range.min, range.max));
  }
  return v;
}

double checked_number(const Json& value, const std::string& where, NumberRange range) {
  if (value.find("__float__") != nullptr) {
    fail(ErrorCode::bad_input, fmt::format("{}: found {}", where, value_text(value)), "a finite number");
  }
  const double v = value.as_number(where);
  if (!(v >= range.min && v <= range.max)) {
    fail(ErrorCode::bad_input, fmt::format("{}: found {}", where, v),
         fmt::format("a number from {} to {}", range.min, range.max));
  }
  return v;
}

}  // namespace

Fields::Fields(Json root, std::string origin) : origin_(std::move(origin)) {
  root.as_object(origin_);
  scopes_.push_back({std::move(root), ""});
}

Fields Fields::nested(std::string_view inner) const {
  Fields out = *this;
  const Found found = lookup({inner});
  if (found.value == nullptr) return out;
  found.value->as_object(found.where);
  out.scopes_.insert(out.scopes_.begin(), {*found.value, scopes_.front().prefix + std::string(inner) + "."});
  return out;
}

Fields::Found Fields::lookup(Keys keys) const {
  for (const Scope& scope : scopes_) {
    Found first;
    for (const std::string_view key : keys) {
      const Json* value = scope.object.find(key);
      if (value == nullptr || value->is_null()) continue;
      std::string where = fmt::format("{}: {}{}", origin_, scope.prefix, key);
      if (first.value == nullptr) {
        first = {value, std::move(where)};
      } else if (!same_value(*value, *first.value)) {
        fail(ErrorCode::bad_input,
             fmt::format("{}: found {} but {} is {}", where, value_text(*value), first.where.substr(origin_.size() + 2),
                         value_text(*first.value)),
             "one value", "remove one of the two spellings");
      }
    }
    if (first.value != nullptr) return first;
  }
  return {};
}

Fields::Found Fields::require(Keys keys, std::string_view expected) const {
  Found found = lookup(keys);
  if (found.value == nullptr) {
    fail(ErrorCode::bad_input, fmt::format("{}: {}{}: missing", origin_, scopes_.front().prefix, spelled(keys)),
         std::string(expected));
  }
  return found;
}

const Json* Fields::find(Keys keys, std::string* where) const {
  Found found = lookup(keys);
  if (where != nullptr) *where = std::move(found.where);
  return found.value;
}

std::int64_t Fields::get_int(Keys keys, IntRange range) const {
  const Found found = require(keys, "an integer");
  return checked_int(*found.value, found.where, range);
}
std::int64_t Fields::get_int(Keys keys, IntRange range, std::int64_t fallback) const {
  return maybe_int(keys, range).value_or(fallback);
}
std::optional<std::int64_t> Fields::maybe_int(Keys keys, IntRange range) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return std::nullopt;
  return checked_int(*found.value, found.where, range);
}

double Fields::get_number(Keys keys, NumberRange range) const {
  const Found found = require(keys, "a number");
  return checked_number(*found.value, found.where, range);
}
double Fields::get_number(Keys keys, NumberRange range, double fallback) const {
  return maybe_number(keys, range).value_or(fallback);
}
std::optional<double> Fields::maybe_number(Keys keys, NumberRange range) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return std::nullopt;
  return checked_number(*found.value, found.where, range);
}

bool Fields::get_bool(Keys keys, bool fallback) const { return maybe_bool(keys).value_or(fallback); }
std::optional<bool> Fields::maybe_bool(Keys keys) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return std::nullopt;
  return found.value->as_bool(found.where);
}

std::string Fields::get_string(Keys keys) const {
  const Found found = require(keys, "a string");
  return found.value->as_string(found.where);
}
std::string Fields::get_string(Keys keys, std::string_view fallback) const {
  return maybe_string(keys).value_or(std::string(fallback));
}
std::optional<std::string> Fields::maybe_string(Keys keys) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return std::nullopt;
  return found.value->as_string(found.where);
}

std::vector<std::int64_t> Fields::get_ints(Keys keys, IntRange range) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return {};
  if (!found.value->is_array()) return {checked_int(*found.value, found.where, range)};
  std::vector<std::int64_t> out;
  for (const Json& v : found.value->as_array(found.where)) {
    out.push_back(checked_int(v, fmt::format("{}[{}]", found.where, out.size()), range));
  }
  return out;
}

std::vector<std::string> Fields::get_strings(Keys keys) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return {};
  if (!found.value->is_array()) return {found.value->as_string(found.where)};
  std::vector<std::string> out;
  for (const Json& v : found.value->as_array(found.where)) {
    out.push_back(v.as_string(fmt::format("{}[{}]", found.where, out.size())));
  }
  return out;
}

Fields Fields::get_object(Keys keys) const {
  const Found found = require(keys, "an object");
  return {*found.value, found.where};
}
std::optional<Fields> Fields::maybe_object(Keys keys) const {
  const Found found = lookup(keys);
  if (found.value == nullptr) return std::nullopt;
  return Fields(*found.value, found.where);
}

Json parse_config_json(std::string_view text, std::string_view origin) {
  static constexpr std::string_view kBare[] = {"NaN", "Infinity", "-Infinity"};
  std::string strict;
  strict.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!in_string) {
      const std::string_view rest = text.substr(i);
      std::string_view token;
      for (const std::string_view bare : kBare) {
        if (rest.substr(0, bare.size()) == bare) token = bare;
      }
      if (!token.empty()) {
        strict += fmt::format(R"({{"__float__": "{}"}})", token);
        i += token.size() - 1;
        continue;
      }
    }
    if (text[i] == '"') in_string = !in_string;
    strict += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size()) strict += text[++i];
  }
  return Json::parse(strict, origin);
}

Json parse_config_file(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_config_json(text, path);
}

}  // namespace sluice::ckpt
