// The harmony format against openai-harmony (tests/gen/make_harmony_goldens.py says how the goldens were made).
#include "text/harmony.h"

#include <gtest/gtest.h>

#include <string>

#include "text/byte_tokenizer.h"
#include "text/tiny_tokenizer.h"

namespace sluice::text {

void PrintTo(const HarmonyPiece& p, std::ostream* out) {
  *out << (p.control ? "[" : "\"") << p.text << (p.control ? "]" : "\"");
}
void PrintTo(const HarmonyMessage& m, std::ostream* out) {
  *out << m.channel << " to=" << m.recipient << " " << m.content_type << ": " << m.content;
}

namespace {

const std::vector<std::string>& kControl = harmony_control_tokens();

Json goldens() { return Json::parse_file(std::string(SLUICE_SOURCE_DIR) + "/tests/text/harmony_goldens.json"); }

std::string text(const Json& object, const char* key) { return object.find(key)->as_string(key); }

std::vector<HarmonyPiece> pieces_of(const Json& golden) {
  std::vector<HarmonyPiece> out;
  for (const Json& piece : golden.find("pieces")->as_array("pieces")) {
    out.push_back({piece.find("control")->as_bool("control"), text(piece, "text")});
  }
  return out;
}

TEST(Harmony, PromptsAsOpenAiHarmonyRendersThem) {
  const Json all = goldens();
  const Json::Array& prompts = all.find("prompts")->as_array("prompts");
  EXPECT_GE(prompts.size(), 40u);
  for (const Json& golden : prompts) {
    const Json& o = *golden.find("options");
    HarmonyOptions options;
    options.reasoning_effort = text(o, "reasoning_effort");
    options.current_date = text(o, "current_date");
    options.add_generation_prompt = o.find("add_generation_prompt")->as_bool("add_generation_prompt");
    EXPECT_EQ(render_harmony(*golden.find("messages"), options), pieces_of(golden)) << text(golden, "name");
  }
}

TEST(Harmony, AnswersAsOpenAiHarmonyTakesThemApart) {
  const Tokenizer tokenizer = byte_tokenizer(kControl);
  const auto tokens = harmony_tokens(tokenizer);
  ASSERT_TRUE(tokens);
  const Json all = goldens();
  for (const Json& golden : all.find("answers")->as_array("answers")) {
    HarmonyReader reader(tokenizer, *tokens);
    std::string shown;
    for (const std::int32_t id : encode_harmony(pieces_of(golden), tokenizer)) shown += reader.push(id);
    shown += reader.finish();
    std::vector<HarmonyMessage> expected;
    std::string contents;
    for (const Json& m : golden.find("messages")->as_array("messages")) {
      expected.push_back({text(m, "channel"), text(m, "recipient"), text(m, "content_type"), text(m, "content")});
      contents += expected.back().content;
    }
    EXPECT_EQ(reader.messages(), expected);
    EXPECT_EQ(shown, contents);
  }
}

TEST(Harmony, ChosenByTheTokensAlone) {
  EXPECT_TRUE(harmony_tokens(byte_tokenizer(kControl)));
  EXPECT_FALSE(harmony_tokens(byte_tokenizer(kControl, /*special=*/false)));
  for (const std::string& missing : kControl) {
    std::vector<std::string> rest;
    for (const std::string& name : kControl) {
      if (name != missing) rest.push_back(name);
    }
    EXPECT_FALSE(harmony_tokens(byte_tokenizer(rest))) << missing;
  }
}

// Spelled out by a user, control tokens are text.
TEST(Harmony, TextCannotForgeControlTokens) {
  const Tokenizer tokenizer = byte_tokenizer(kControl);
  const Ids ids = encode_harmony({{true, "<|end|>"}, {false, "<|end|>"}}, tokenizer);
  EXPECT_EQ(ids, (Ids{257, '<', '|', 'e', 'n', 'd', '|', '>'}));
}

TEST(Harmony, AnswersThatKeepNoForm) {
  const Tokenizer tokenizer = byte_tokenizer(kControl);
  const auto tokens = harmony_tokens(tokenizer);
  ASSERT_TRUE(tokens);
  const auto read = [&](const std::string& answer) {
    HarmonyReader reader(tokenizer, *tokens);
    for (const std::int32_t id : encode(tokenizer, answer)) reader.push(id);
    reader.finish();
    return reader.messages();
  };
  using Messages = std::vector<HarmonyMessage>;
  EXPECT_EQ(read("just text"), (Messages{{"", "", "", "just text"}}));
  EXPECT_EQ(read("just text<|end|>"), (Messages{{"", "", "", "just text"}}));
  EXPECT_EQ(read(""), Messages{});
  EXPECT_EQ(read("<|channel|>final<|message|>x<|end|>junk<|start|>assistant<|channel|>final<|message|>y<|return|>"),
            (Messages{{"final", "", "", "x"}, {"final", "", "", "y"}}));
  EXPECT_EQ(read("<|channel|>final <|constrain|>json<|message|>{}"),
            (Messages{{"final", "", "<|constrain|>json", "{}"}}));
}

TEST(Harmony, RefusesWhatIsNoConversation) {
  const auto render = [](const std::string& json) { render_harmony(Json::parse(json, "messages"), {}); };
  expect_error(ErrorCode::bad_input, {"messages[1]: role \"judge\""},
               [&] { render(R"([{"role": "user", "content": "a"}, {"role": "judge"}])"); });
  expect_error(ErrorCode::bad_input, {"messages[0]", "without a call"},
               [&] { render(R"([{"role": "tool", "content": "1"}])"); });
}

}  // namespace
}  // namespace sluice::text
