#include "server/served_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api_error.h"

namespace sluice::server {
namespace {

std::int64_t longest_token(const text::Tokenizer& tokenizer) {
  std::size_t most = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) most = std::max(most, tokenizer.token_text(id).size());
  return static_cast<std::int64_t>(most);
}

}  // namespace

ServedModel::ServedModel(const text::Tokenizer& t, const text::ChatTemplate* chat, std::int64_t embeddings,
                         std::int64_t positions, std::int64_t kv_tokens)
    : tokenizer(t),
      chat_template(chat),
      vocab(embeddings),
      context(positions),
      longest(std::min(positions, kv_tokens)),
      longest_token(server::longest_token(t)),
      thoughts(ThoughtTokens::of(t)) {}

std::vector<std::int32_t> encode(const ServedModel& m, const std::string& text, bool add_special, bool parse_special,
                                 const char* param) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes / m.longest_token > m.longest) {
    throw ApiError(
        400,
        fmt::format("this model's maximum context length is {} tokens, and a text of {} bytes has at least {}",
                    m.longest, bytes, bytes / m.longest_token),
        param, "context_length_exceeded");
  }
  std::vector<std::int32_t> ids = m.tokenizer.encode(text, add_special, parse_special);
  for (const std::int32_t id : ids) {
    if (id >= m.vocab) {
      throw ApiError(400, fmt::format("the text has token {}, which the model has no embedding for", id), param);
    }
  }
  return ids;
}

std::vector<std::int32_t> checked_ids(const ServedModel& m, const std::vector<std::int64_t>& ids, const char* param) {
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= m.vocab) {
      throw ApiError(400, fmt::format("{}: token {} is not in 0 to {}", param, id, m.vocab - 1), param,
                     "invalid_value");
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace sluice::server
