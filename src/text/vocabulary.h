// Token strings and their ids: those of the model and those added to it.
//
// Built by the loader, then immutable; safe to read from many threads. Ids may have holes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/string_table.h"

namespace sluice::text {

class Vocabulary {
 public:
  // Most ids beyond the number of tokens that a file may leave unused.
  static constexpr std::int64_t kMaxHoles = 1 << 20;

  Vocabulary() = default;
  // From the object {"token": id, ...}. Throws Error(bad_input) naming the token for a negative, doubled or far too
  // large id.
  Vocabulary(const Json& tokens, const std::string& where);

  // Adds one token; throws Error(bad_input) naming `where` when its id is taken or out of range.
  void add(std::string_view token, std::int64_t id, const std::string& where);

  std::int32_t find(std::string_view token) const { return ids_.find(token); }  // -1 = none
  bool contains(std::int64_t id) const {
    return id >= 0 && id < size() && tokens_[static_cast<std::size_t>(id)].present;
  }
  std::string_view token(std::int64_t id) const;  // empty for an id that no token has

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }  // highest id + 1
  std::size_t tokens() const { return ids_.size(); }

 private:
  struct Entry {
    std::string_view::size_type offset = 0;
    std::uint32_t bytes = 0;
    bool present = false;
  };

  void put(std::string_view token, std::int64_t id, const std::string& where);

  StringTable ids_;
  std::vector<Entry> tokens_;  // by id
  std::string text_;
};

}  // namespace sluice::text
