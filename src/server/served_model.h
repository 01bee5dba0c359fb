// What the readers of requests know of the model. Made once it has been loaded; immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/answer_text.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::server {

// Sampling of a request that does not say: generation_config.json, else OpenAI's.
struct SamplingDefaults {
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
};

struct ServedModel {
  // Both outlive this; `chat` may be nullptr. `kv_tokens`: what the KV cache holds.
  ServedModel(const text::Tokenizer& tokenizer, const text::ChatTemplate* chat, std::int64_t vocab,
              std::int64_t context, std::int64_t kv_tokens);

  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat_template;
  std::int64_t vocab;
  std::int64_t context;        // tokens
  std::int64_t longest;        // prompt and answer, in a cache that may be smaller than the context
  std::int64_t longest_token;  // bytes
  ThoughtTokens thoughts;
  // Set by whoever knows the model's files.
  std::string name;
  std::string weight_version = "default";
  SamplingDefaults sampling;
  std::vector<std::string> stops;
  std::vector<std::int32_t> eos_ids;
};

// Token ids of a prompt. Throws ApiError 400 for a text that cannot fit, before it is cut into tokens.
std::vector<std::int32_t> encode(const ServedModel& model, const std::string& text, bool add_special,
                                 bool parse_special, const char* param);
// Checks ids that a client sent.
std::vector<std::int32_t> checked_ids(const ServedModel& model, const std::vector<std::int64_t>& ids,
                                      const char* param);

}  // namespace sluice::server
