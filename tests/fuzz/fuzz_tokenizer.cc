// Fuzzes the tokeniser: the input is a tokenizer.json, a zero byte, and a text. No file and no text may crash it, and
// decoding token by token must give the same text as decoding at once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using sluice::text::Tokenizer;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_decoding(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip_special) {
  sluice::text::StreamDecoder stream(tokenizer, skip_special);
  std::string streamed;
  for (std::int32_t id : ids) {
    const std::string part = stream.push(id);
    require(sluice::text::valid_utf8(part));
    streamed += part;
  }
  streamed += stream.flush();
  require(streamed == tokenizer.decode(ids, skip_special));
}

void check(std::string_view json, std::string_view text) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(sluice::Json::parse(json, "input"), "input", sluice::Json(), "config");
  for (int flags = 0; flags < 4; ++flags) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, (flags & 1) != 0, (flags & 2) != 0);
    for (std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
    check_decoding(tokenizer, ids, (flags & 1) != 0);
  }
  std::vector<std::int32_t> ids;
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  check_decoding(tokenizer, ids, false);
  for (std::int32_t id : ids) tokenizer.token_text(id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) return 0;
  try {
    check(input.substr(0, end), input.substr(end + 1));
  } catch (const sluice::Error&) {  // a message for the user: what is wanted for bad input
  }
  return 0;
}
