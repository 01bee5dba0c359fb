// Plain values to bytes and back, for what ranks of a run send each other. Used by step_plan.cc and step_message.cc.
//
// Little-endian, the byte order of the machines that are supported. A reader checks every count against what is left
// before it allocates, so that damaged bytes give Error(bad_input) and never a crash. One thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace sluice::engine {

static_assert(std::endian::native == std::endian::little, "messages travel in the byte order of the machine");

class Writer {
 public:
  template <class T>
  void value(const T& v) {
    static_assert(std::is_arithmetic_v<T>, "padding would travel");
    append(&v, sizeof(T));
  }
  template <class T>
  void list(const std::vector<T>& v) {
    static_assert(std::is_arithmetic_v<T>, "padding would travel");
    value(static_cast<std::uint64_t>(v.size()));
    append(v.data(), v.size() * sizeof(T));
  }
  void bytes(std::span<const std::byte> v) {
    value(static_cast<std::uint64_t>(v.size()));
    append(v.data(), v.size());
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void append(const void* data, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), first, first + bytes);
  }

  std::vector<std::byte> out_;
};

class Reader {
 public:
  // `what` is named in errors and outlives the reader.
  Reader(std::span<const std::byte> bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <class T>
  T value() {
    T v;
    std::memcpy(&v, take(sizeof(T)).data(), sizeof(T));
    return v;
  }
  // A count of items that take at least `item_bytes` each, checked against what is left.
  std::size_t count(std::size_t item_bytes) {
    const auto n = value<std::uint64_t>();
    if (n > bytes_.size() / item_bytes) {
      fail(ErrorCode::bad_input, std::string(what_) + ": list of " + std::to_string(n) + " items",
           "at most what the remaining " + std::to_string(bytes_.size()) + " bytes hold");
    }
    return static_cast<std::size_t>(n);
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> v(count(sizeof(T)));
    if (!v.empty()) std::memcpy(v.data(), take(v.size() * sizeof(T)).data(), v.size() * sizeof(T));
    return v;
  }
  std::span<const std::byte> bytes() { return take(count(1)); }
  void expect_end() const {
    if (!bytes_.empty()) fail(ErrorCode::bad_input, std::string(what_) + ": bytes after its end", "none");
  }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    if (bytes_.size() < bytes) {
      fail(ErrorCode::bad_input, std::string(what_) + ": ends early", "all " + std::to_string(bytes) + " bytes");
    }
    const std::span<const std::byte> taken = bytes_.first(bytes);
    bytes_ = bytes_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> bytes_;
  const char* what_;
};

}  // namespace sluice::engine
