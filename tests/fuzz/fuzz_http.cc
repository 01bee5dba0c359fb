// The input is what a client sends, cut in two at a place that the first byte names: the parser takes it apart the same
// way wherever it is cut, within its limits, and every body becomes a request of the engine or a refusal with a 4xx.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/parser.h"
#include "server/api_error.h"
#include "server/generate.h"
#include "server/openai.h"

namespace {

using namespace sluice;

constexpr const char* kFolder = SLUICE_SOURCE_DIR "/models/qwen3_moe";

void require(bool condition) {
  if (!condition) __builtin_trap();
}

http::ParserLimits limits() {
  http::ParserLimits l;
  l.header_bytes = 512;
  l.header_count = 8;
  l.body_bytes = 4096;
  return l;
}

struct Collect : http::ParserSink {
  http::Parser* parser = nullptr;
  std::vector<std::string> messages;
  std::string body;

  bool on_headers() override {
    require(parser->request().headers.list().size() <= limits().header_count);
    body.clear();
    return true;
  }
  void on_body(std::string_view part) override {
    body += part;
    require(body.size() <= limits().body_bytes);
  }
  void on_complete() override { messages.push_back(body); }
};

// All bodies of a connection whose bytes come in parts of `step`.
std::vector<std::string> bodies_of(std::string_view bytes, std::size_t step) {
  Collect collect;
  http::Parser parser(http::Parser::Kind::request, limits(), collect);
  collect.parser = &parser;
  while (!bytes.empty() && parser.error() == http::ParseError::none) {
    const std::size_t taken = parser.feed(bytes.substr(0, step));
    require(taken <= std::min(step, bytes.size()) && (taken > 0 || parser.error() != http::ParseError::none));
    bytes.remove_prefix(taken);
  }
  return collect.messages;
}

struct Model {
  text::Tokenizer tokenizer = text::Tokenizer::load(kFolder);
  text::ChatTemplate chat = text::load_chat_template(kFolder).value();
  server::ServedModel served{tokenizer, &chat, 1024, 4096, 4096};
};

void read_body(const std::string& body, const server::ServedModel& model) {
  for (auto* read : {server::read_completion, server::read_chat, server::read_generate}) {
    server::Random random(1);
    try {
      const server::Ask ask = read(server::parse_body(body), model, random);
      require(!ask.prompts.empty() && ask.n >= 1);
      require(ask.request.max_new_tokens >= 0 && ask.request.sampling.temperature >= 0);
      for (const server::Prompt& prompt : ask.prompts) {
        const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
        require(tokens > 0 && tokens + ask.request.max_new_tokens <= model.longest);
        for (const std::int32_t id : prompt.ids) require(id >= 0 && id < model.vocab);
      }
    } catch (const server::ApiError& e) {
      require(e.status() >= 400 && e.status() < 500);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  static const Model* const model = new Model;  // lives as long as the fuzzer
  if (bytes < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  const std::vector<std::string> whole = bodies_of(text, text.size() + 1);
  require(whole == bodies_of(text, data[0] % 61 + 1));
  for (const std::string& body : whole) read_body(body, model->served);
  read_body(std::string(text), model->served);
  return 0;
}
