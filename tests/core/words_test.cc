#include "core/words.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Words, WholeWordsOnly) {
  EXPECT_TRUE(has_word("auto normal low_latency", "auto"));
  EXPECT_TRUE(has_word("auto normal low_latency", "low_latency"));
  EXPECT_FALSE(has_word("auto normal low_latency", "low"));
  EXPECT_FALSE(has_word("auto", "auto normal"));
  EXPECT_FALSE(has_word("", "auto"));
}

TEST(Words, Commas) {
  EXPECT_EQ(commas("none deepep mori"), "none, deepep, mori");
  EXPECT_EQ(commas("none"), "none");
}

}  // namespace
}  // namespace sluice
