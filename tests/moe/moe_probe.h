// Files in and out of the probe: raw little-endian arrays in a directory, and spec.json with the numbers. Only
// moe_probe*.cc include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace sluice::probe {

struct Request {
  std::string folder;
  Json spec;

  std::string path(const std::string& file) const { return folder + "/" + file; }
  const Json& field(const char* key) const {
    const Json* value = spec.find(key);
    if (value == nullptr) fail(ErrorCode::usage, std::string("spec.json has no ") + key);
    return *value;
  }
  std::int64_t integer(const char* key) const { return field(key).as_int(key); }
  float number(const char* key) const { return static_cast<float>(field(key).as_number(key)); }
  bool flag(const char* key) const { return field(key).as_bool(key); }
  const std::string& text(const char* key) const { return field(key).as_string(key); }
};

// Whole file as elements of T; empty when there is no such file.
template <class T>
std::vector<T> read_array(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void write_array(const std::string& path, const T* values, std::size_t count, bool append = false) {
  std::ofstream file(path, append ? std::ios::binary | std::ios::app : std::ios::binary);
  file.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

// The enum value of [0, count) whose name is `name`.
template <class Enum, class NameOf>
Enum by_name(const std::string& name, int count, NameOf name_of) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  fail(ErrorCode::usage, "unknown name " + name);
}

void run_layer(const Request& request);

}  // namespace sluice::probe
