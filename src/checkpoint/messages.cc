#include "checkpoint/messages.h"

#include <algorithm>

namespace sluice::ckpt {
namespace {

constexpr std::size_t kMaxBytes = 300;
constexpr std::size_t kListed = 5;

std::string shortened(std::string_view text) {
  return text.size() <= kMaxBytes ? std::string(text) : std::string(text.substr(0, kMaxBytes)) + "...";
}

template <class List, class Text>
std::string joined(const List& list, std::size_t count, Text text) {
  std::string out;
  for (std::size_t i = 0; i < std::min(count, list.size()); ++i) out += (i == 0 ? "" : ", ") + text(list[i]);
  const std::size_t left = list.size() - std::min(count, list.size());
  return left == 0 ? out : out + " and " + std::to_string(left) + " more";
}

}  // namespace

std::string quote(std::string_view text) { return Json(shortened(text)).dump(); }

std::string printable(std::string_view text) {
  const std::string in_quotes = quote(text);
  return in_quotes.substr(1, in_quotes.size() - 2);
}

std::string value_text(const Json& value) { return shortened(value.dump()); }

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kDimensions = 16;
  return "[" + joined(shape, kDimensions, [](std::int64_t n) { return std::to_string(n); }) + "]";
}

std::string first_few(const std::vector<std::string>& names) {
  return joined(names, kListed, [](const std::string& name) { return printable(name); });
}

}  // namespace sluice::ckpt
