// Fuzzes the template engine: the input is a template, rendered with a fixed conversation and small limits.
//
// Whatever the input, parsing and rendering end with a text or with sluice::Error.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "text/chat_template.h"

namespace {

constexpr std::string_view kConversation = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Größe? 世界 😀 <b> '\" \\ \n"},
  {"role": "assistant", "content": null, "reasoning_content": "hm",
   "tool_calls": [{"id": "abcdefghi", "type": "function",
                   "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null], "y": {}}}}]},
  {"role": "tool", "tool_call_id": "abcdefghi", "content": [{"type": "text", "text": "12"}]}
])";

std::tm fixed_time() {
  std::tm t{};
  t.tm_year = 124;
  t.tm_mday = 31;
  return t;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const sluice::Json messages = sluice::Json::parse(kConversation, "messages");
  sluice::text::ChatOptions options;
  options.clock = fixed_time;
  options.bos_token = "<s>";
  options.add_generation_prompt = true;
  options.limits = {.steps = 100'000, .memory_bytes = 4'000'000};
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    sluice::text::ChatTemplate::parse(text, "fuzz").render(messages, options);
  } catch (const sluice::Error&) {
    return 0;
  }
  return 0;
}
