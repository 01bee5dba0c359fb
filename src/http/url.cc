#include "http/url.h"

#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>

#include "core/error.h"

namespace sluice::http {
namespace {

constexpr int kMostPort = 65535;

[[noreturn]] void bad_url(const std::string& text) {
  fail(ErrorCode::usage, "not an address of a server: \"" + text + "\"", "http://HOST:PORT");
}

int parse_port(const std::string& text, const std::string& url) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > kMostPort) bad_url(url);
  return port;
}

}  // namespace

Url parse_url(const std::string& text) {
  std::string rest = text;
  if (rest.rfind("https://", 0) == 0) {
    fail(ErrorCode::unsupported, text + ": https is not spoken", "http://HOST:PORT",
         "put a proxy in between that speaks TLS");
  }
  if (rest.rfind("http://", 0) == 0) rest = rest.substr(7);
  Url url;
  const std::size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    url.path = rest.substr(slash);
    rest.resize(slash);
  }
  while (url.path.ends_with('/')) url.path.pop_back();
  const bool bracketed = rest.rfind('[', 0) == 0;
  const std::size_t end = bracketed ? rest.find(']') : rest.find(':');
  if (bracketed && end == std::string::npos) bad_url(text);
  url.host = bracketed ? rest.substr(1, end - 1) : rest.substr(0, end);
  const std::size_t colon = bracketed ? end + 1 : end;
  if (colon < rest.size()) {
    if (rest[colon] != ':') bad_url(text);
    url.port = parse_port(rest.substr(colon + 1), text);
  }
  if (url.host.empty() || url.host.find_first_of(" @?#") != std::string::npos) bad_url(text);
  return url;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::uint8_t byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && text.size() - i > 2 && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

Address resolve(const Url& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
  if (result != 0) fail(ErrorCode::usage, url.host + ": " + gai_strerror(result), "the name of a server");
  const addrinfo* best = found;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET && best->ai_family != AF_INET) best = a;
  }
  Address address;
  address.family = best->ai_family;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(best->ai_addr);
  address.bytes.assign(bytes, bytes + best->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

}  // namespace sluice::http
