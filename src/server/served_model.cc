#include "server/served_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "server/api_error.h"

namespace sluice::server {
namespace {

SamplingDefaults defaults_of(const ckpt::GenerationConfig& g) {
  SamplingDefaults d;
  d.temperature = g.temperature.value_or(d.temperature);
  d.top_k = g.top_k.value_or(d.top_k);
  d.top_p = g.top_p.value_or(d.top_p);
  d.min_p = g.min_p.value_or(d.min_p);
  d.repetition_penalty = g.repetition_penalty.value_or(d.repetition_penalty);
  return d;
}

std::int64_t longest_token(const text::Tokenizer& tokenizer) {
  std::size_t most = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) most = std::max(most, tokenizer.token_text(id).size());
  return static_cast<std::int64_t>(most);
}

}  // namespace

ServedModel::ServedModel(const app::LoadedModel& model, std::string served_name, std::int64_t kv_tokens,
                         bool from_model)
    : loaded(model),
      tokenizer(*model.tokenizer),
      name(std::move(served_name)),
      thoughts(ThoughtTokens::of(*model.tokenizer)),
      stops(model.generation.stop_strings),
      eos_ids(model.generation.eos_token_ids.begin(), model.generation.eos_token_ids.end()),
      vocab(model.opened.config.vocab),
      context(model.facts.context_length),
      longest(std::min(context, kv_tokens)),
      longest_token(server::longest_token(*model.tokenizer)) {
  if (from_model) sampling = defaults_of(model.generation);
}

std::vector<std::int32_t> encode(const ServedModel& m, const std::string& text, bool add_special, bool parse_special,
                                 const char* param) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes / m.longest_token > m.context) {
    throw ApiError(
        400,
        fmt::format("this model's maximum context length is {} tokens, and a text of {} bytes has at least {}",
                    m.context, bytes, bytes / m.longest_token),
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
