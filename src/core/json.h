// JSON values with errors that name file and field. The only file that knows the JSON library is json.cc.
//
// Immutable after parsing; reading from many threads is safe. Objects keep the order of the file; a duplicate key is an
// error, because which one counts would be a guess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sluice {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;                                                         // null
  Json(bool v) : value_(v) {}                                               // NOLINT(google-explicit-constructor)
  Json(std::int64_t v) : value_(v) {}                                       // NOLINT(google-explicit-constructor)
  Json(int v) : value_(static_cast<std::int64_t>(v)) {}                     // NOLINT(google-explicit-constructor)
  Json(double v) : value_(v) {}                                             // NOLINT(google-explicit-constructor)
  Json(std::string v) : value_(std::move(v)) {}                             // NOLINT(google-explicit-constructor)
  Json(std::string_view v) : value_(std::string(v)) {}                      // NOLINT(google-explicit-constructor)
  Json(const char* v) : value_(std::string(v)) {}                           // NOLINT(google-explicit-constructor)
  Json(Array v) : value_(std::make_shared<const Array>(std::move(v))) {}    // NOLINT(google-explicit-constructor)
  Json(Object v) : value_(std::make_shared<const Object>(std::move(v))) {}  // NOLINT(google-explicit-constructor)

  // Parses a whole document. `origin` names the file in errors. Throws Error(bad_input) with the position; refuses
  // nesting deeper than 200, duplicate keys, invalid UTF-8 and integers outside int64.
  static Json parse(std::string_view text, std::string_view origin);
  // Reads and parses a file; also throws Error(bad_input) when it cannot be read.
  static Json parse_file(const std::string& path);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<std::shared_ptr<const Array>>(value_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<const Object>>(value_); }
  // "null", "bool", "integer", "number", "string", "array" or "object", for messages.
  std::string_view type_name() const;

  // Typed access. `where` names the field in the error (for example "config.json: hidden_size").
  bool as_bool(std::string_view where) const;
  std::int64_t as_int(std::string_view where) const;  // also accepts a number without a fraction (4096.0)
  double as_number(std::string_view where) const;
  const std::string& as_string(std::string_view where) const;
  const Array& as_array(std::string_view where) const;
  const Object& as_object(std::string_view where) const;

  // Member of an object, or nullptr when this is no object or has no such member. Linear in the number of members.
  const Json* find(std::string_view key) const;

  // Text of this value: compact when indent < 0. Non-finite numbers are written as null.
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, std::shared_ptr<const Array>,
               std::shared_ptr<const Object>>
      value_;
};

}  // namespace sluice
