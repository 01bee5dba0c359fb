// The table of routes: method, path, and the member of ApiServer that answers. Private to the server.
#pragma once

#include <span>
#include <string_view>

#include "server/api_server.h"
#include "server/reading.h"

namespace sluice::server {

struct Route {
  using Answer = void (ApiServer::*)(const std::shared_ptr<http::Exchange>&);
  std::string_view method;  // GET answers HEAD too
  std::string_view path;    // ends in '*' when anything may follow
  bool needs_model;         // answers 503 until a first token was generated, and while shutting down
  Answer answer = nullptr;  // of a route without a body
  Read read = nullptr;      // of one whose body is read by a worker

  static std::span<const Route> all();
  // nullptr when no path is like this with this method; `allowed` gets the methods of the path.
  static const Route* find(const http::Request& request, std::string& allowed);
};

}  // namespace sluice::server
