#include "http/url.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::http {
namespace {

TEST(Url, PartsAndDefaults) {
  const Url full = parse_url("http://example.org:8000/base/v1/");
  EXPECT_EQ(full.host, "example.org");
  EXPECT_EQ(full.port, 8000);
  EXPECT_EQ(full.path, "/base/v1");
  const Url bare = parse_url("127.0.0.1");
  EXPECT_EQ(bare.port, 80);
  EXPECT_EQ(bare.path, "");
  const Url six = parse_url("http://[::1]:30000");
  EXPECT_EQ(six.host, "::1");
  EXPECT_EQ(six.port, 30000);
}

TEST(Url, PercentDecoded) {
  EXPECT_EQ(percent_decoded("org%2Fmy%20model%c3%A9"), "org/my model\u00e9");
  EXPECT_EQ(percent_decoded("%"), "%");
  EXPECT_EQ(percent_decoded("a%4"), "a%4");
  EXPECT_EQ(percent_decoded("%4x%+1%41"), "%4x%+1A");
}

TEST(Url, WhatIsNone) {
  for (const char* text : {"", "http://", "http://h:", "http://h:0", "http://h:65536", "http://h:1x", "http://[::1",
                           "http://[::1]x", "http://a b", "http://user@h", "http:// h"}) {
    EXPECT_THROW(parse_url(text), Error) << text;
  }
  try {
    parse_url("https://h");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace sluice::http
