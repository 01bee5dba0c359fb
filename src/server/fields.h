// Reads the fields of a request's JSON body. Every complaint is an ApiError of status 400 that names the field, what
// was found and what is expected. A field that is null counts as absent, as clients send both.
//
// Used by the readers of requests only; refers to a Json that outlives it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace sluice::server {

class Fields {
 public:
  // Throws when `object` is no object. `prefix` is put before names in messages ("sampling_params.").
  explicit Fields(const Json& object, std::string prefix = "");

  const Json* find(const char* name) const;  // nullptr when absent or null
  std::optional<bool> flag(const char* name) const;
  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most) const;
  std::optional<double> number(const char* name, double least, double most) const;
  std::optional<std::string> text(const char* name) const;
  // A string or a list of strings.
  std::vector<std::string> texts(const char* name, std::size_t most) const;
  // A list of integers, or one.
  std::vector<std::int64_t> integers(const char* name, std::size_t most) const;

  // Throws if the field is there and asks for something: is neither false, an empty text, list or object, nor the
  // number `neutral`. Where `empty_asks`, an empty object does: as a schema it allows any JSON.
  void refuse(const char* name, const char* why, std::optional<double> neutral = std::nullopt,
              bool empty_asks = false) const;
  // Throws for a field that has none of these names.
  void refuse_others(std::span<const std::string_view> names) const;
  [[noreturn]] void bad(const char* name, const std::string& what) const;

 private:
  const Json& object_;
  std::string prefix_;
};

// Parses a body; throws ApiError 400.
Json parse_body(const std::string& body);

}  // namespace sluice::server
