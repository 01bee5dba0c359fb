#include "server/json_text.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

namespace sluice::server {
namespace {

constexpr float kLeastLogprob = -9999.0f;

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, i - plain);
    append_escaped(out, c);
    plain = i + 1;
  }
  out.append(text, plain);
  out += '"';
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

void append_logprob(std::string& out, float value) {
  if (!std::isfinite(value) || value < kLeastLogprob) value = kLeastLogprob;
  fmt::format_to(std::back_inserter(out), "{}", value);
}

}  // namespace sluice::server
