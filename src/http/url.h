// Addresses of HTTP servers. Pure but for `resolve`, which asks the system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

struct Url {
  std::string host;
  int port = 80;
  std::string path;  // "" or "/base", without a slash at the end
};

// "http://127.0.0.1:30000/base", "localhost:8000". Throws Error(usage); https is refused with what to do instead.
Url parse_url(const std::string& text);

// "a%2Fb" > "a/b"; what is no two hexadecimal digits behind a % stays as it is.
std::string percent_decoded(std::string_view text);

// A socket address as the system wants it.
struct Address {
  int family = 0;
  std::vector<std::uint8_t> bytes;
};
// Blocks. Throws Error(usage) for a name that nobody knows. IPv4 first: most local servers listen on nothing else.
Address resolve(const Url& url);

}  // namespace sluice::http
