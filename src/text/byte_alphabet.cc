#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace sluice::text {
namespace {

constexpr bool stands_for_itself(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};  // by character; -1 = not in the alphabet
};

constexpr Tables make_tables() {
  Tables t;
  for (auto& b : t.byte) b = -1;
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const auto i = static_cast<std::size_t>(b);
    t.character[i] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
    t.byte[t.character[i]] = static_cast<std::int16_t>(b);
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_alphabet(unsigned char byte) { return kTables.character[byte]; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (char b : bytes) append_utf8(out, byte_to_alphabet(static_cast<unsigned char>(b)));
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view valid_utf8) {
  std::string out;
  out.reserve(valid_utf8.size());
  while (!valid_utf8.empty()) {
    const CodePoint c = decode_utf8(valid_utf8);
    if (c.value >= kTables.byte.size() || kTables.byte[c.value] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kTables.byte[c.value]));
    valid_utf8.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  return out;
}

}  // namespace sluice::text
