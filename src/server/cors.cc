#include "server/cors.h"

#include <algorithm>

namespace sluice::server {

bool is_preflight(const http::Request& request) {
  return request.method == "OPTIONS" && request.headers.find("access-control-request-method") != nullptr;
}

http::Headers cors_headers(const http::Request& request, const std::vector<std::string>& allowed) {
  const std::string* origin = request.headers.find("origin");
  const auto has = [&](const std::string& text) {
    return std::find(allowed.begin(), allowed.end(), text) != allowed.end();
  };
  const bool any = has("*");
  http::Headers headers;
  if (!any && !allowed.empty()) headers.add("Vary", "Origin");
  if (origin == nullptr || !(any || has(*origin))) return headers;
  headers.add("Access-Control-Allow-Origin", any ? "*" : *origin);
  if (!is_preflight(request)) {
    headers.add("Access-Control-Expose-Headers", "Retry-After");
    return headers;
  }
  headers.add("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
  const std::string* wanted = request.headers.find("access-control-request-headers");
  if (wanted != nullptr) headers.add("Access-Control-Allow-Headers", *wanted);  // "*" would leave out Authorization
  headers.add("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace sluice::server
