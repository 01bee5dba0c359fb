#include "core/json.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice {
namespace {

// The message of the Error that `f` throws.
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    return e.what();
  }
  return "no error";
}

std::string parse_message(std::string_view text) {
  return message_of([&] { Json::parse(text, "config.json"); });
}

TEST(Json, ReadsEveryKindOfValue) {
  const Json v = Json::parse(R"({"a": [1, -2.5, "x\u00e9", true, null], "b": {"c": {}}})", "t");
  const auto& a = v.find("a")->as_array("a");
  EXPECT_EQ(a[0].as_int("a"), 1);
  EXPECT_EQ(a[1].as_number("a"), -2.5);
  EXPECT_EQ(a[2].as_string("a"), "x\xC3\xA9");
  EXPECT_TRUE(a[3].as_bool("a"));
  EXPECT_TRUE(a[4].is_null());
  EXPECT_TRUE(v.find("b")->find("c")->as_object("c").empty());
  EXPECT_EQ(v.find("nothing"), nullptr);
  EXPECT_EQ(a[0].find("a"), nullptr) << "a number has no members";
}

TEST(Json, ObjectsKeepTheOrderOfTheFile) {
  const Json v = Json::parse(R"({"z": 1, "a": 2, "m": 3})", "t");
  std::string order;
  for (const auto& [key, value] : v.as_object("t")) order += key;
  EXPECT_EQ(order, "zam");
}

TEST(Json, IntegersAreExactAndWholeNumbersCountAsIntegers) {
  EXPECT_EQ(Json::parse("9007199254740993", "t").as_int("t"), 9007199254740993);
  EXPECT_EQ(Json::parse("4096.0", "t").as_int("t"), 4096);
  EXPECT_NE(message_of([] { Json::parse("4096.5", "t").as_int("f"); }).find("f: found number; expected an integer"),
            std::string::npos);
}

TEST(Json, RefusesWhatWouldBeAGuess) {
  EXPECT_NE(parse_message(R"({"a": 1, "a": 2})").find("config.json: duplicate key \"a\""), std::string::npos);
  EXPECT_NE(parse_message("18446744073709551615").find("does not fit"), std::string::npos);
  EXPECT_NE(parse_message("1e999").find("config.json"), std::string::npos);
  EXPECT_NE(parse_message("{} x").find("not valid JSON at byte"), std::string::npos);
  EXPECT_NE(parse_message("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(parse_message("\"\xff\"").find("not valid JSON"), std::string::npos);
}

TEST(Json, SaysInItsOwnWordsWhatIsWrongAndWhere) {
  const struct {
    const char *text, *place, *words;
  } cases[] = {
      {"{\n \"a\": 1,\n \"b\" 2}", "line 3, column 6", "this was not expected here, at \"2\""},
      {"{\"a\": tru}", "line 1, column 10", "this is no value; text stands in double quotes, at \"\"a\": tru}\""},
      {"{'a': 1}", "line 1, column 2", "this is no value"},
      {"[1, 2", "line 1, column 6", "the text ends in the middle"},
      {"[\"ab", "line 1, column 5", "the text ends inside a string"},
      {"[\"\xff\"]", "line 1, column 3", "these bytes are no UTF-8"},
      {"[\"a\nb\"]", "line 1, column 4", "a control character in a string"},
      {"[\"\\ud800\"]", "line 1", "half of a surrogate pair"},
      {"[\"\\x\"]", "line 1, column 4", "no such escape"},
      {"[\"\\u12g4\"]", "line 1", "four hexadecimal digits"},
      {"[-]", "line 1, column 3", "this is no number"},
      {"[1e999]", "line 1", "a number that no double holds"},
  };
  for (const auto& c : cases) {
    const std::string message = parse_message(c.text);
    EXPECT_NE(message.find("not valid JSON at byte"), std::string::npos) << message;
    EXPECT_NE(message.find(c.place), std::string::npos) << message;
    EXPECT_NE(message.find(c.words), std::string::npos) << message;
    for (const char* theirs : {"exception", "syntax error", "last read"}) {
      EXPECT_EQ(message.find(theirs), std::string::npos) << message;
    }
  }
}

TEST(Json, NulIsNotTheEnd) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view text : {"{}\0"sv, "{}\0rest"sv, "{\"a\": \"b\0c\"}"sv}) {
    EXPECT_THROW(Json::parse(text, "test"), Error) << text;
  }
}

TEST(Json, NestingIsBounded) {
  EXPECT_EQ(parse_message(std::string(199, '[') + std::string(199, ']')), "no error");
  EXPECT_NE(parse_message(std::string(100000, '[')).find("nested deeper than 200"), std::string::npos);
}

TEST(Json, WrongTypesNameFieldExpectedAndFound) {
  const Json v = Json::parse(R"({"hidden_size": "256"})", "t");
  EXPECT_EQ(message_of([&] { v.find("hidden_size")->as_int("config.json: hidden_size"); }),
            "config.json: hidden_size: found string; expected an integer");
  EXPECT_EQ(message_of([&] { v.as_array("top"); }), "top: found object; expected an array");
}

TEST(Json, DumpReadsBackEqual) {
  const std::string text = R"({"a":[1,2.5,"q\"\\\n",false,null],"b":{}})";
  EXPECT_EQ(Json::parse(text, "t").dump(), text);
  EXPECT_EQ(Json::parse(Json::parse(text, "t").dump(2), "t").dump(), text);
}

TEST(Json, MissingFileNamesThePath) {
  EXPECT_NE(message_of([] { Json::parse_file("/nonexistent/config.json"); }).find("/nonexistent/config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice
