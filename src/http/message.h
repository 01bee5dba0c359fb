// HTTP messages as plain data. Used by the parser, the server and the client.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::http {

class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> list) : list_(list) {}

  void add(std::string name, std::string value) { list_.emplace_back(std::move(name), std::move(value)); }
  // The first with this name, in any case; nullptr when there is none.
  const std::string* find(std::string_view name) const;
  // Appends "name: value\r\n" for each.
  void append_to(std::string& out) const;
  std::vector<std::pair<std::string, std::string>>& list() { return list_; }
  const std::vector<std::pair<std::string, std::string>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, std::string>> list_;
};

struct Request {
  std::string method;
  std::string path;  // without the query
  std::string query;
  Headers headers;
  std::string body;
  int minor_version = 1;
  bool keep_alive = true;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;  // beside content type, length and connection
  std::string body;
};

std::string_view reason_phrase(int status);

}  // namespace sluice::http
