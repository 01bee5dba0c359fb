#include "text/vocabulary.h"

#include "core/error.h"

namespace sluice::text {

Vocabulary::Vocabulary(const Json& tokens, const std::string& where) : ids_(tokens.as_object(where).size()) {
  const Json::Object& members = tokens.as_object(where);
  const std::int64_t limit = static_cast<std::int64_t>(members.size()) + kMaxHoles;
  std::int64_t highest = -1;
  for (const auto& [token, id] : members) {
    const std::int64_t v = id.is_int() ? id.as_int(where) : -1;
    if (v < 0 || v >= limit) {
      fail(ErrorCode::bad_input, where + ": token \"" + token + "\" has the id " + id.dump(),
           "an integer from 0 to " + std::to_string(limit - 1));
    }
    highest = v > highest ? v : highest;
  }
  tokens_.resize(static_cast<std::size_t>(highest + 1));
  for (const auto& [token, id] : members) put(token, id.as_int(where), where);
}

void Vocabulary::add(std::string_view token, std::int64_t id, const std::string& where) {
  if (id < 0 || id >= static_cast<std::int64_t>(tokens()) + kMaxHoles + 1) {
    fail(ErrorCode::bad_input, where + ": token \"" + std::string(token) + "\" has the id " + std::to_string(id),
         "an id from 0 to " + std::to_string(static_cast<std::int64_t>(tokens()) + kMaxHoles));
  }
  put(token, id, where);
}

void Vocabulary::put(std::string_view token, std::int64_t id, const std::string& where) {
  const auto i = static_cast<std::size_t>(id);
  if (i >= tokens_.size()) tokens_.resize(i + 1);
  if (tokens_[i].present) {
    fail(ErrorCode::bad_input,
         where + ": tokens \"" + std::string(this->token(id)) + "\" and \"" + std::string(token) +
             "\" both have the id " + std::to_string(id),
         "one token for each id");
  }
  if (!ids_.insert(token, static_cast<std::int32_t>(id))) {
    fail(ErrorCode::bad_input, where + ": token \"" + std::string(token) + "\" is there twice");
  }
  tokens_[i] = {text_.size(), static_cast<std::uint32_t>(token.size()), true};
  text_.append(token);
}

std::string_view Vocabulary::token(std::int64_t id) const {
  if (!contains(id)) return {};
  const Entry& e = tokens_[static_cast<std::size_t>(id)];
  return std::string_view(text_).substr(e.offset, e.bytes);
}

}  // namespace sluice::text
