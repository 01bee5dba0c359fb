#include "checkpoint/header_scan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::ckpt {
namespace {

// Reads what it is asked for and says whether that was there. Texts are views into what is scanned.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool eat(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  // Of printable ASCII without escapes.
  bool text(std::string_view& out) {
    if (!eat('"')) return false;
    const char* begin = at_;
    while (at_ != end_ && *at_ >= ' ' && *at_ <= '~' && *at_ != '"' && *at_ != '\\') ++at_;
    out = {begin, static_cast<std::size_t>(at_ - begin)};
    return at_ != end_ && *at_++ == '"';
  }
  // Up to 18 digits, which any number of bytes in a file has.
  bool number(std::uint64_t& out) {
    skip_space();
    const char* begin = at_;
    out = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9' && at_ - begin < 18) {
      out = 10 * out + static_cast<std::uint64_t>(*at_++ - '0');
    }
    const bool zero_first = at_ - begin > 1 && *begin == '0';
    return at_ != begin && !zero_first && (at_ == end_ || is_behind_number(*at_));
  }
  // {"key": value, ...}: value(key) reads what follows the colon.
  template <class Value>
  bool object(Value value) {
    if (!eat('{')) return false;
    if (eat('}')) return true;
    std::string_view key;
    do {
      if (!text(key) || !eat(':') || !value(key)) return false;
    } while (eat(','));
    return eat('}');
  }
  template <class Element>
  bool array(Element element) {
    if (!eat('[')) return false;
    if (eat(']')) return true;
    do {
      if (!element()) return false;
    } while (eat(','));
    return eat(']');
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
  static bool is_behind_number(char c) { return c == ',' || c == ']' || c == '}' || is_space(c); }
  void skip_space() {
    while (at_ != end_ && is_space(*at_)) ++at_;
  }

  const char* at_;
  const char* end_;
};

bool scan_shape(Scanner& scanner, std::vector<std::int64_t>& shape) {
  std::uint64_t n = 0;
  return scanner.array([&] {
    if (!scanner.number(n)) return false;
    shape.push_back(static_cast<std::int64_t>(n));
    return true;
  });
}

// Whether all bits of the shape are whole bytes, `bytes` of them.
bool fits(const TensorEntry& tensor, std::uint64_t bytes) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  auto bits = static_cast<std::uint64_t>(dtype_bits(tensor.dtype));
  for (const std::int64_t extent : tensor.shape) {
    const auto n = static_cast<std::uint64_t>(extent);
    if (n != 0 && bits > kMax / n) return false;
    bits *= n;
  }
  return bits % 8 == 0 && bits / 8 == bytes;
}

bool scan_tensor(Scanner& scanner, std::uint64_t data_bytes, TypeOf type_of, TensorEntry& tensor) {
  int types = 0, shapes = 0, offsets = 0;
  std::uint64_t begin = 0, end = 0;
  std::string_view type;
  std::optional<DType> tensor_type;
  const bool read = scanner.object([&](std::string_view key) {
    if (key == "dtype") return ++types == 1 && scanner.text(type) && (tensor_type = type_of(type)).has_value();
    if (key == "shape") return ++shapes == 1 && scan_shape(scanner, tensor.shape);
    return key == "data_offsets" && ++offsets == 1 && scanner.eat('[') && scanner.number(begin) && scanner.eat(',') &&
           scanner.number(end) && scanner.eat(']');
  });
  if (!read || types + shapes + offsets != 3 || begin > end || end > data_bytes) return false;
  tensor.dtype = *tensor_type;
  tensor.offset_bytes = begin;
  tensor.bytes = end - begin;
  return fits(tensor, tensor.bytes);
}

bool has_duplicates(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

// {"key": "text", ...}, without a key twice.
bool scan_texts(Scanner& scanner, std::vector<std::pair<std::string, std::string>>& texts) {
  std::vector<std::string_view> keys;
  std::string_view value;
  return scanner.object([&](std::string_view key) {
    if (!scanner.text(value)) return false;
    keys.push_back(key);
    texts.emplace_back(key, value);
    return true;
  }) && !has_duplicates(std::move(keys));
}

}  // namespace

bool scan_header(std::string_view text, std::uint64_t data_bytes, TypeOf type_of, SafetensorsHeader& header) {
  Scanner scanner(text);
  std::vector<std::string_view> names;
  const bool read = scanner.object([&](std::string_view name) {
    names.push_back(name);
    if (name == "__metadata__") return scan_texts(scanner, header.metadata);
    TensorEntry& tensor = header.tensors.emplace_back();
    tensor.name = name;
    return scan_tensor(scanner, data_bytes, type_of, tensor);
  });
  return read && scanner.at_end() && !has_duplicates(std::move(names));
}

bool scan_index(std::string_view text, WeightMap& map) {
  Scanner scanner(text);
  bool found = false, sized = false;
  std::uint64_t bytes = 0;
  const bool read = scanner.object([&](std::string_view key) {
    if (key == "weight_map") return !std::exchange(found, true) && scan_texts(scanner, map);
    // {"total_size": 123}, which has no use here.
    return key == "metadata" && !std::exchange(sized, true) &&
           scanner.object([&, seen = false](std::string_view) mutable {
             return !std::exchange(seen, true) && scanner.number(bytes);
           });
  });
  return read && found && scanner.at_end();
}

}  // namespace sluice::ckpt
