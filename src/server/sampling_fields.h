// Fields that all generating endpoints share: sampling, stops, lengths. Pure functions over a request's fields.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "server/fields.h"
#include "server/job.h"
#include "server/served_model.h"

namespace sluice::server {

constexpr std::int64_t kMostAnswers = 128;  // to a prompt
constexpr std::size_t kMostPrompts = 1024;  // of a request

using Random = std::mt19937_64;  // the server's, for ids and for seeds that a request leaves open

// Temperature to seed, stops and what belongs to them, under the names of OpenAI, vLLM and SGLang.
void read_sampling(const Fields& fields, const ServedModel& model, Random& random, Ask& ask);

// stream and stream_options.
void read_stream(const Fields& fields, Ask& ask);

// priority, and the salt of the prefix cache.
void read_scheduling(const Fields& fields, Ask& ask);

// The least and the most tokens of an answer under all their names in a body of OpenAI's endpoints. After the prompts
// were read; `otherwise` as for set_length.
void read_lengths(const Fields& fields, const ServedModel& model, std::optional<std::int64_t> otherwise, Ask& ask);

// The least number of tokens of an answer; after set_length.
void read_least(const Fields& fields, const char* name, Ask& ask);

// Throws for the fields of another endpoint that would change the answer: where `others` has a field, `why` says what
// to do.
void refuse_all(const Fields& fields, std::span<const char* const> others, const char* why);

// best_of other than n: all answers are returned.
void refuse_best_of(const Fields& fields, std::int64_t n);

// What only a chat may have, elsewhere.
void refuse_chat_fields(const Fields& fields);

// What nothing here can do, each with a reason. unsupported.cc.
void refuse_unsupported(const Fields& fields);

// Sets max_new_tokens: what was asked for, else `otherwise` as far as it fits; nullopt = all that fits. Throws ApiError
// 400 with the numbers when a prompt or what was asked for does not fit.
void set_length(const ServedModel& model, std::optional<std::int64_t> asked, std::optional<std::int64_t> otherwise,
                const char* param, Ask& ask);

// `rid`, else a new id.
std::string read_id(const Fields& fields, const char* prefix, Random& random);
// "chatcmpl-" and 32 hexadecimal digits.
std::string new_id(const char* prefix, Random& random);
std::int64_t unix_time();

// Throws ApiError 404 for a model that is not served here. Returns the name to answer with.
std::string checked_model(const Fields& fields, const ServedModel& model);

}  // namespace sluice::server
