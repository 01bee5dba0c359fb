// Runs the tokeniser on a file of cases, for the comparison with the `tokenizers` package (test_tokenizer_oracle.py).
//
// tokenizer_probe encode|decode|bytes FOLDER IN OUT. All numbers are little-endian 32-bit.
// encode: IN is a list of (flags, bytes, text), flags 1 = add special tokens, 2 = parse special tokens;
//         OUT is a list of (count, ids).
// decode: IN is a list of (flags, count, ids), flags 1 = skip special tokens; OUT is a list of (bytes, text). Every
// case
//         is decoded at once and token by token; a difference, or half a character in between, is an error.
// bytes:  IN is not read; OUT is a list of (bytes, text of the token) for all ids.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using sluice::text::StreamDecoder;
using sluice::text::Tokenizer;

struct Input {
  std::string_view rest;
  std::uint32_t number() {
    std::uint32_t v;
    std::memcpy(&v, text(4).data(), 4);
    return v;
  }
  std::string_view text(std::size_t bytes) {
    if (bytes > rest.size()) throw std::runtime_error("the input ends too early");
    const std::string_view out = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return out;
  }
};

void put(std::string& out, std::size_t number) {
  const auto v = static_cast<std::uint32_t>(number);
  out.append(reinterpret_cast<const char*>(&v), 4);
}

void put_text(std::string& out, std::string_view text) {
  put(out, text.size());
  out.append(text);
}

void encode(const Tokenizer& tokenizer, Input& in, std::string& out) {
  const std::uint32_t flags = in.number();
  const std::size_t bytes = in.number();
  const std::vector<std::int32_t> ids = tokenizer.encode(in.text(bytes), (flags & 1) != 0, (flags & 2) != 0);
  put(out, ids.size());
  for (std::int32_t id : ids) put(out, static_cast<std::uint32_t>(id));
}

void decode(const Tokenizer& tokenizer, Input& in, std::string& out) {
  const bool skip = (in.number() & 1) != 0;
  std::vector<std::int32_t> ids(in.number());
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(in.number());
  const std::string whole = tokenizer.decode(ids, skip);
  StreamDecoder stream(tokenizer, skip);
  std::string streamed;
  for (std::int32_t id : ids) {
    const std::string part = stream.push(id);
    if (!sluice::text::valid_utf8(part)) throw std::runtime_error("half a character in the stream");
    streamed += part;
  }
  streamed += stream.flush();
  if (streamed != whole) throw std::runtime_error("streamed text differs: " + streamed + " / " + whole);
  put_text(out, whole);
}

void run(const std::string& mode, const std::string& folder, const char* in_path, const char* out_path) {
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::string out;
  if (mode == "bytes") {
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) put_text(out, tokenizer.token_text(id));
  } else {
    std::ifstream file(in_path, std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (Input in{data}; !in.rest.empty();) mode == "encode" ? encode(tokenizer, in, out) : decode(tokenizer, in, out);
  }
  std::ofstream(out_path, std::ios::binary) << out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: tokenizer_probe encode|decode|bytes FOLDER IN OUT\n", stderr);
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4]);
    return 0;
  } catch (const sluice::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
