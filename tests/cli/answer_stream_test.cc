#include <gtest/gtest.h>

#include "cli/session.h"
#include "text/byte_tokenizer.h"

namespace sluice::cli {
namespace {

const text::Tokenizer& bundled_tokenizer() {
  static const auto tokenizer = text::Tokenizer::load(SLUICE_SOURCE_DIR "/models/qwen3_moe");
  return tokenizer;
}

// What a user sees when `answer` is generated token by token.
std::string shown(const std::string& answer, const std::vector<std::string>& stops) {
  AnswerStream stream(bundled_tokenizer(), stops);
  std::string text;
  for (const std::int32_t id : bundled_tokenizer().encode(answer, false, true)) {
    text += stream.push(id);
    if (stream.stopped()) break;
  }
  return text + stream.finish();
}

TEST(AnswerStream, AnswersEndBeforeTheStopString) {
  EXPECT_EQ(shown("The answer is 7.\n#### 7\n\nQuestion: more", {"\n\n"}), "The answer is 7.\n#### 7");
  EXPECT_EQ(shown("no stop here\n", {"\n\n"}), "no stop here\n");
  EXPECT_EQ(shown("a Question: b", {"\n\n", "Question"}), "a ");
}

TEST(AnswerStream, CharactersArriveWhole) {
  const std::string answer = "caf\xC3\xA9 \xE4\xB8\xAD\xF0\x9F\x98\x80!";
  AnswerStream stream(bundled_tokenizer(), {});
  std::string text;
  for (const std::int32_t id : bundled_tokenizer().encode(answer, false, true)) {
    const std::string piece = stream.push(id);
    const bool starts_inside = !piece.empty() && (static_cast<unsigned char>(piece[0]) & 0xC0) == 0x80;
    EXPECT_FALSE(starts_inside);
    text += piece;
  }
  EXPECT_EQ(text + stream.finish(), answer);
}

// Of a harmony answer the user sees what is said to him: no thoughts, no calls of tools, no control tokens.
TEST(AnswerStream, HarmonyShowsWhatIsForTheUser) {
  const text::Tokenizer tokenizer = text::byte_tokenizer(text::harmony_control_tokens());
  const auto tokens = text::harmony_tokens(tokenizer);
  ASSERT_TRUE(tokens);
  const auto shown_of = [&](const std::string& answer, const std::vector<std::string>& stops) {
    AnswerStream stream(tokenizer, stops, &*tokens);
    std::string text;
    for (const std::int32_t id : tokenizer.encode(answer, false, true)) {
      text += stream.push(id);
      if (stream.stopped()) break;
    }
    return text + stream.finish();
  };
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  EXPECT_EQ(shown_of(thought + "<|channel|>final<|message|>Hi \xF0\x9F\x98\x80", {}), "Hi \xF0\x9F\x98\x80");
  EXPECT_EQ(shown_of(thought + "<|channel|>commentary to=functions.f<|message|>{}", {}), "");
  EXPECT_EQ(shown_of(thought + "<|channel|>commentary<|message|>Let me look.<|end|>", {}), "Let me look.");
  EXPECT_EQ(shown_of("<|channel|>analysis<|message|>cut of", {}), "");
  EXPECT_EQ(shown_of("no form", {}), "no form");
  EXPECT_EQ(shown_of(thought + "<|channel|>final<|message|>one. Hm. two STOP three", {"STOP"}), "one. Hm. two ");
}

TEST(Sampling, FlagsComeBeforeTheModelsConfiguration) {
  Options options;
  ckpt::GenerationConfig generation;
  EXPECT_EQ(sampling_of(options, generation).temperature, 0.0f) << "greedy unless the model samples";
  generation.do_sample = true;
  generation.temperature = 0.6;
  generation.top_p = 0.95;
  EXPECT_FLOAT_EQ(sampling_of(options, generation).temperature, 0.6f);
  EXPECT_EQ(sampling_of(options, generation).top_k, 50) << "the default of transformers for sampling models";
  options.temperature = 0;
  EXPECT_EQ(sampling_of(options, generation).temperature, 0.0f);
  EXPECT_FLOAT_EQ(sampling_of(options, generation).top_p, 1.0f);
  EXPECT_EQ(sampling_of(options, generation).repetition_penalty, 1.0f);
  generation.repetition_penalty = 1.2;
  EXPECT_FLOAT_EQ(sampling_of(options, generation).repetition_penalty, 1.2f) << "greedy answers too, as transformers";
  options.repetition_penalty = 1.05;
  options.presence_penalty = 0.5;
  EXPECT_FLOAT_EQ(sampling_of(options, generation).repetition_penalty, 1.05f);
  EXPECT_FLOAT_EQ(sampling_of(options, generation).presence_penalty, 0.5f);
}

TEST(Stops, ComeFromModelAndFlags) {
  Options options;
  ckpt::GenerationConfig generation;
  generation.stop_strings = {"\n\n"};
  generation.eos_token_ids = {0, 3};
  options.stop = {"END"};
  EXPECT_EQ(stop_strings_of(options, generation), (std::vector<std::string>{"\n\n", "END"}));
  EXPECT_EQ(stop_ids_of(options, generation), (std::vector<std::int32_t>{0, 3}));
  options.ignore_eos = true;
  EXPECT_EQ(stop_strings_of(options, generation), std::vector<std::string>{"END"});
  EXPECT_TRUE(stop_ids_of(options, generation).empty());
}

}  // namespace
}  // namespace sluice::cli
