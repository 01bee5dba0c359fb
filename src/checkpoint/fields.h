// Typed reading of configuration objects (config.json and its sections, generation_config.json).
//
// Every getter takes a list of spellings of one field, because the same field has several names across model families
// and library versions. Two spellings present with different values are an error, since which one counts would be a
// guess. null counts as absent. Errors are Error(bad_input) "config.json: hidden_size: found string; expected ...".
// A Fields shares the (immutable) JSON it reads; copying is cheap, reading is thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace sluice::ckpt {

using Keys = std::initializer_list<std::string_view>;

// Inclusive bounds.
struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
struct NumberRange {
  double min = 0;
  double max = 0;
};

// Sanity bounds of model sizes: far above any real model, and small enough that products of a few of them (E * I * H)
// stay within 64 bits.
inline constexpr IntRange kDimRange{1, std::int64_t{1} << 20};  // hidden and intermediate sizes, head sizes, ranks
inline constexpr IntRange kVocabRange{1, std::int64_t{1} << 24};
inline constexpr IntRange kCountRange{0, std::int64_t{1} << 16};     // layers, heads, experts, groups
inline constexpr IntRange kPositionRange{1, std::int64_t{1} << 31};  // context lengths, windows
inline constexpr IntRange kTokenIdRange{0, (std::int64_t{1} << 31) - 1};

class Fields {
 public:
  // `origin` begins every message. Throws when `root` is no object.
  Fields(Json root, std::string origin);

  // The same object seen through `inner`, one of its members: fields are looked up there first, then here.
  Fields nested(std::string_view inner) const;

  // nullptr when absent or null. `where`, if given, receives the name for messages.
  const Json* find(Keys keys, std::string* where = nullptr) const;
  bool has(Keys keys) const { return find(keys) != nullptr; }

  std::int64_t get_int(Keys keys, IntRange range) const;
  std::int64_t get_int(Keys keys, IntRange range, std::int64_t fallback) const;
  std::optional<std::int64_t> maybe_int(Keys keys, IntRange range) const;
  double get_number(Keys keys, NumberRange range) const;
  double get_number(Keys keys, NumberRange range, double fallback) const;
  std::optional<double> maybe_number(Keys keys, NumberRange range) const;
  bool get_bool(Keys keys, bool fallback) const;
  std::optional<bool> maybe_bool(Keys keys) const;
  std::string get_string(Keys keys) const;
  std::string get_string(Keys keys, std::string_view fallback) const;
  std::optional<std::string> maybe_string(Keys keys) const;

  // A list, or a single value as a list of one; empty when absent.
  std::vector<std::int64_t> get_ints(Keys keys, IntRange range) const;
  std::vector<std::string> get_strings(Keys keys) const;

  // An object member as Fields of its own.
  Fields get_object(Keys keys) const;
  std::optional<Fields> maybe_object(Keys keys) const;

  const std::string& origin() const { return origin_; }

 private:
  struct Scope {
    Json object;
    std::string prefix;  // "text_config.", before the name of a field in messages
  };
  struct Found {
    const Json* value = nullptr;
    std::string where;
  };
  Found lookup(Keys keys) const;
  Found require(Keys keys, std::string_view expected) const;

  std::vector<Scope> scopes_;  // looked up in this order
  std::string origin_;
};

// Parses a JSON text as Python writes it: a bare NaN, Infinity or -Infinity becomes {"__float__": "NaN"} and so on, the
// other spelling in use, so that a file with such a value opens and only reading that value fails, with its name.
Json parse_config_json(std::string_view text, std::string_view origin);

// Reads and parses a file with parse_config_json. Throws Error(bad_input) also when it cannot be read.
Json parse_config_file(const std::string& path);

}  // namespace sluice::ckpt
