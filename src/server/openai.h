// OpenAI's two generating endpoints: what their requests mean, and their answers in JSON.
//
// Called by the router. The readers are functions of the body and the model; a Reply belongs to its job.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "server/job.h"
#include "server/sampling_fields.h"
#include "server/served_model.h"

namespace sluice::server {

// POST /v1/completions and /v1/chat/completions. Throw ApiError.
Ask read_completion(const Json& body, const ServedModel& model, Random& random);
Ask read_chat(const Json& body, const ServedModel& model, Random& random);

std::unique_ptr<Reply> completion_reply(const Job& job, const ServedModel& model);
std::unique_ptr<Reply> chat_reply(const Job& job, const ServedModel& model);

// The prompt of a conversation: its text, and its ids. For chat and /apply-template.
struct RenderedChat {
  std::string text;
  std::vector<std::int32_t> ids;
  bool harmony = false;
};
RenderedChat render_chat(const Fields& body, const ServedModel& model);

// {"prompt_tokens": ..., ...} of a job.
std::string usage_json(const Job& job);
// `stop` strings and ids as both replies report them: null, "text" or a number.
std::string matched_stop(const Choice& choice);

}  // namespace sluice::server
