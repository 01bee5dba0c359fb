// Hand-made tokenizer.json files for the unit tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/tokenizer.h"

namespace sluice::text {

using Ids = std::vector<std::int32_t>;

inline Tokenizer tokenizer_of(const std::string& json, const std::string& config = "null") {
  return Tokenizer::from_json(Json::parse(json, "tokenizer.json"), "tokenizer.json",
                              Json::parse(config, "tokenizer_config.json"), "tokenizer_config.json");
}

inline Ids encode(const Tokenizer& t, std::string_view text) { return t.encode(text, false, true); }

// Runs `action`, which must throw Error with that code and all of these parts in its message.
template <class Action>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with " << parts.front();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "\"" << e.what() << "\" lacks " << part;
    }
  }
}

}  // namespace sluice::text
