#include "server/routes.h"

#include <fmt/core.h>
#include <strings.h>

#include <array>
#include <cstring>

#include "server/api_error.h"
#include "server/cors.h"

namespace sluice::server {
namespace {

bool same_method(std::string_view route, std::string_view asked) {
  return route == asked || (route == "GET" && asked == "HEAD");
}

bool same_path(std::string_view route, std::string_view asked) {
  if (!route.ends_with('*')) return route == asked;
  route.remove_suffix(1);
  return asked.size() > route.size() && asked.starts_with(route);
}

// Takes as long for a wrong key as for a right one.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

std::string nothing_at(const http::Request& request) {
  return fmt::format("there is nothing at {}", request.path.substr(0, 200));
}

// A body is JSON in UTF-8 as it is, of which ASCII is a part.
void check_type(const http::Request& request) {
  const std::string* type = request.headers.find("content-type");
  if (type != nullptr && strcasestr(type->c_str(), "json") == nullptr) {
    throw ApiError(415, fmt::format("the body is of type {}; expected application/json", type->substr(0, 100)));
  }
  constexpr std::string_view kCharset = "charset=";
  const char* set = type == nullptr ? nullptr : strcasestr(type->c_str(), kCharset.data());
  if (set != nullptr) {
    std::string name = set + kCharset.size();
    std::erase(name, '"');
    name = name.substr(0, name.find_first_of("; \t"));
    const auto is = [&](const char* known) { return strcasecmp(name.c_str(), known) == 0; };
    if (!is("utf-8") && !is("utf8") && !is("us-ascii")) {
      throw ApiError(415, fmt::format("the body is in {}; expected utf-8", name.substr(0, 100)));
    }
  }
  const std::string* encoding = request.headers.find("content-encoding");
  if (encoding != nullptr && !encoding->empty() && strcasecmp(encoding->c_str(), "identity") != 0) {
    throw ApiError(415, fmt::format("the body is sent as {}; expected no Content-Encoding", encoding->substr(0, 100)));
  }
}

std::string allowed_methods(const http::Request& request) {
  http::Request none;
  none.path = request.path;
  std::string allowed;
  Route::find(none, allowed);
  return allowed.empty() ? allowed : allowed + ", OPTIONS";
}

}  // namespace

std::span<const Route> Route::all() {
  using S = ApiServer;
  static constexpr std::array kRoutes = {
      Route{"POST", "/v1/chat/completions", true, nullptr, &S::chat_completions},
      Route{"POST", "/v1/completions", true, nullptr, &S::completions},
      Route{"POST", "/generate", true, nullptr, &S::generate},
      Route{"GET", "/health", false, &S::health},
      Route{"GET", "/ready", false, &S::ready},
      Route{"GET", "/health_generate", true, &S::health_generate},
      Route{"GET", "/v1/models", true, &S::models},
      Route{"GET", "/v1/models/*", true, &S::one_model},
      Route{"GET", "/get_model_info", true, &S::model_info},
      Route{"GET", "/model_info", true, &S::model_info},
      Route{"GET", "/get_server_info", true, &S::server_info},
      Route{"GET", "/server_info", true, &S::server_info},
      Route{"POST", "/tokenize", true, nullptr, &S::tokenize},
      Route{"POST", "/detokenize", true, nullptr, &S::detokenize},
      Route{"POST", "/apply-template", true, nullptr, &S::apply_template},
      Route{"GET", "/version", false, &S::version},
      Route{"GET", "/metrics", false, &S::metrics_page},
      Route{"GET", "/expert_load", true, &S::expert_load},
      Route{"GET", "/expert_load.svg", true, &S::expert_load},
      Route{"GET", "/flush_cache", true, &S::flush_cache},
      Route{"POST", "/flush_cache", true, &S::flush_cache},
      Route{"POST", "/abort_request", true, nullptr, &S::abort_request},
  };
  return kRoutes;
}

const Route* Route::find(const http::Request& request, std::string& allowed) {
  for (const Route& route : all()) {
    if (!same_path(route.path, request.path)) continue;
    if (same_method(route.method, request.method)) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method == "GET" ? "GET, HEAD" : route.method);
  }
  return nullptr;
}

void ApiServer::check_key(const http::Request& request) const {
  if (options_.api_key.empty() || request.path == "/health") return;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string* given = request.headers.find("authorization");
  const bool right = given != nullptr && strncasecmp(given->c_str(), kBearer.data(), kBearer.size()) == 0 &&
                     same_secret(std::string_view(*given).substr(kBearer.size()), options_.api_key);
  if (!right) {
    throw ApiError(401, "this server asks for a key; send the header Authorization: Bearer KEY", "", "invalid_api_key");
  }
}

void ApiServer::check_admission(const http::Request& request) const {
  check_key(request);
  std::string allowed;
  const Route* route = Route::find(request, allowed);
  if (route == nullptr && allowed.empty()) throw ApiError(404, nothing_at(request), "", "not_found");
  if (route == nullptr) throw ApiError(405, fmt::format("{} is for {}", request.path, allowed));
  if (route->method == "POST") check_type(request);
  if (!route->needs_model) return;
  if (draining_) throw shutting_down();
  if (!served_) throw ApiError(503, "the model is being loaded", "", "loading");
}

std::optional<http::Response> ApiServer::admit(const http::Request& request) {
  if (request.method == "OPTIONS") return std::nullopt;  // asks what may be asked, also without a key
  try {
    check_admission(request);
    return std::nullopt;
  } catch (const ApiError& e) {
    ++metrics_.responses[e.status()];
    http::Response response = error_response(e);
    if (e.status() == 405) response.headers.add("Allow", allowed_methods(request));
    return response;
  }
}

http::Response ApiServer::refusal(int status, const std::string& why) {
  ++metrics_.responses[status];
  return error_response(ApiError(status, why));
}

http::Headers ApiServer::more_headers(const http::Request& request) const {
  return cors_headers(request, options_.allowed_origins);
}

void ApiServer::options(const Exchange& exchange) {
  const http::Request& request = exchange->request();
  const std::string allowed = request.path == "*" ? "GET, HEAD, POST, OPTIONS" : allowed_methods(request);
  if (allowed.empty() && !is_preflight(request)) throw ApiError(404, nothing_at(request), "", "not_found");
  http::Response response;
  response.status = 204;
  response.content_type = "";
  if (!allowed.empty()) response.headers.add("Allow", allowed);
  ++metrics_.responses[response.status];
  exchange->respond(response);
}

void ApiServer::handle(const Exchange& exchange) {
  guarded(exchange, [&] {
    if (exchange->request().method == "OPTIONS") return options(exchange);
    std::string allowed;
    const Route* route = Route::find(exchange->request(), allowed);
    if (route == nullptr)
      throw ApiError(404, nothing_at(exchange->request()), "", "not_found");  // admit() lets none pass
    if (route->read != nullptr) return read_body(*route, exchange);
    (this->*route->answer)(exchange);
  });
}

// No request ends the server: whatever goes wrong is an answer.
void ApiServer::guarded(const Exchange& exchange, const std::function<void()>& answer) {
  try {
    answer();
  } catch (...) {
    const http::Response refusal = current_error_response();
    ++metrics_.responses[refusal.status];
    exchange->respond(refusal);
  }
}

void ApiServer::reply(const Exchange& exchange, int status, std::string body, const char* type) {
  ++metrics_.responses[status];
  http::Response response;
  response.status = status;
  response.content_type = type;
  response.body = std::move(body);
  exchange->respond(response);
}

}  // namespace sluice::server
