#include "server/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/json.h"

namespace sluice::server {
namespace {

TEST(JsonText, EveryByteSurvives) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80";
  EXPECT_EQ(Json::parse(server::json_quoted(all), "t").as_string("t"), all);
  EXPECT_EQ(server::json_quoted("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(server::json_quoted(""), "\"\"");
}

TEST(JsonText, LogProbabilitiesAreAlwaysNumbers) {
  const auto text = [](float value) {
    std::string out;
    append_logprob(out, value);
    return Json::parse(out, "t").as_number("t");
  };
  EXPECT_FLOAT_EQ(static_cast<float>(text(-0.123456789f)), -0.123456789f);
  EXPECT_EQ(text(0), 0);
  EXPECT_EQ(text(-std::numeric_limits<float>::infinity()), -9999);
  EXPECT_EQ(text(std::nanf("")), -9999);
  EXPECT_EQ(text(-1e20f), -9999);
}

}  // namespace
}  // namespace sluice::server
