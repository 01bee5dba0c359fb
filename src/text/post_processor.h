// The "post_processor" of tokenizer.json, reduced to what it does to the ids of one text: some in front, some behind.
//
// Owned by Tokenizer. Plain data, immutable after loading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "text/vocabulary.h"

namespace sluice::text {

struct PostProcessor {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

// Throws Error(unsupported) for a type that is not known, Error(bad_input) for an id that no token has.
PostProcessor read_post_processor(const Json& json, const std::string& where, const Vocabulary& vocabulary);

}  // namespace sluice::text
