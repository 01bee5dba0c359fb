#include "checkpoint/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "checkpoint/header_scan.h"
#include "checkpoint/messages.h"
#include "core/error.h"
#include "core/json.h"

namespace sluice::ckpt {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

// Indexed by DType.
constexpr std::array<std::string_view, 17> kFormatNames = {"F64",     "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2",
                                                           "F8_E8M0", "F4",  "U8",  "I8",   "I16",     "U16",
                                                           "I32",     "U32", "I64", "U64",  "BOOL"};

std::optional<DType> dtype_of(std::string_view name) {
  const auto* it = std::find(kFormatNames.begin(), kFormatNames.end(), name);
  if (it == kFormatNames.end()) return std::nullopt;
  return static_cast<DType>(it - kFormatNames.begin());
}

std::string all_format_names() {
  std::string out = "one of";
  for (const std::string_view name : kFormatNames) out += " " + std::string(name);
  return out;
}

std::uint64_t header_length(std::span<const std::byte> head, std::uint64_t file_bytes, const std::string& origin) {
  if (file_bytes < kLengthBytes || head.size() < kLengthBytes) {
    fail(ErrorCode::bad_input, origin + ": the file has " + std::to_string(file_bytes) + " bytes",
         "a safetensors file, which starts with 8 bytes of header length", "the download may be incomplete");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(head[i]);
  if (std::memcmp(head.data(), "version ", kLengthBytes) == 0) {
    fail(ErrorCode::bad_input, origin + ": is a Git LFS pointer", "the safetensors file itself", "run: git lfs pull");
  }
  if (length > kMaxHeaderBytes) {
    fail(ErrorCode::bad_input, origin + ": header length: found " + std::to_string(length) + " bytes",
         "at most " + std::to_string(kMaxHeaderBytes), "the file is damaged or no safetensors file");
  }
  if (length > file_bytes - kLengthBytes || length > head.size() - kLengthBytes) {
    fail(ErrorCode::bad_input,
         origin + ": header length: found " + std::to_string(length) + " bytes in a file of " +
             std::to_string(file_bytes),
         "a header inside the file", "the file is truncated; fetch it again");
  }
  return length;
}

// Reads one member of the header. `where_` is "file: tensor "name"" and begins every message.
class EntryReader {
 public:
  EntryReader(const std::string& origin, const std::string& name, const Json& value, std::uint64_t data_bytes)
      : where_(origin + ": tensor " + quote(name)), value_(value), data_bytes_(data_bytes) {
    entry_.name = name;
  }

  TensorEntry read() {
    value_.as_object(where_);
    read_dtype();
    read_shape();
    read_offsets();
    return std::move(entry_);
  }

 private:
  const Json& field(std::string_view key) const {
    const Json* found = value_.find(key);
    if (found == nullptr) fail(ErrorCode::bad_input, where_ + ": " + std::string(key) + ": missing", "this field");
    return *found;
  }

  // The format knows non-negative integers only: 4.0 is refused, unlike in config files.
  std::uint64_t unsigned_of(const Json& v, const std::string& name) const {
    if (!v.is_int() || v.as_int(name) < 0) {
      fail(ErrorCode::bad_input, where_ + ": " + name + ": found " + value_text(v), "an integer of at least 0");
    }
    return static_cast<std::uint64_t>(v.as_int(name));
  }

  void read_dtype() {
    const std::string& name = field("dtype").as_string(where_ + ": dtype");
    const std::optional<DType> type = dtype_of(name);
    if (!type) fail(ErrorCode::bad_input, where_ + ": dtype: found " + quote(name), all_format_names());
    entry_.dtype = *type;
  }

  void read_shape() {
    std::uint64_t bits = static_cast<std::uint64_t>(dtype_bits(entry_.dtype));
    // Bits, not elements, are bounded: a product that fits here cannot overflow in any later size computation.
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    for (const Json& dim : field("shape").as_array(where_ + ": shape")) {
      const std::uint64_t n = unsigned_of(dim, "shape");
      if (n != 0 && bits > kMax / n) {
        fail(ErrorCode::bad_input, where_ + ": shape: " + value_text(field("shape")) + " overflows 64 bits",
             "a tensor that fits in a file");
      }
      bits *= n;
      entry_.shape.push_back(static_cast<std::int64_t>(n));
    }
    if (bits % 8 != 0) {
      fail(ErrorCode::bad_input, where_ + ": shape: " + value_text(field("shape")) + " ends inside a byte",
           "whole bytes of packed elements");
    }
    entry_.bytes = bits / 8;
  }

  void read_offsets() {
    const Json& offsets = field("data_offsets");
    const Json::Array& pair = offsets.as_array(where_ + ": data_offsets");
    if (pair.size() != 2) {
      fail(ErrorCode::bad_input, where_ + ": data_offsets: found " + std::to_string(pair.size()) + " numbers", "two");
    }
    const std::uint64_t begin = unsigned_of(pair[0], "data_offsets");
    const std::uint64_t end = unsigned_of(pair[1], "data_offsets");
    if (begin > end)
      fail(ErrorCode::bad_input, where_ + ": data_offsets: found " + value_text(offsets), "begin <= end");
    if (end > data_bytes_) {
      fail(ErrorCode::bad_input, where_ + ": data_offsets: found " + value_text(offsets),
           "an end within the " + std::to_string(data_bytes_) + " bytes of data in the file",
           "the file is truncated; fetch it again");
    }
    if (end - begin != entry_.bytes) {
      fail(ErrorCode::bad_input,
           where_ + ": data_offsets: " + value_text(offsets) + " span " + std::to_string(end - begin) + " bytes",
           std::to_string(entry_.bytes) + " for " + std::string(safetensors_dtype_name(entry_.dtype)) + " " +
               shape_text(entry_.shape));
    }
    entry_.offset_bytes = begin;
  }

  std::string where_;
  const Json& value_;
  std::uint64_t data_bytes_;
  TensorEntry entry_;
};

void read_metadata(const Json& value, const std::string& origin, SafetensorsHeader& header) {
  const std::string where = origin + ": __metadata__";
  for (const auto& [key, text] : value.as_object(where)) {
    header.metadata.emplace_back(key, text.as_string(where + ": " + printable(key)));
  }
}

// Any JSON, with a message for whatever is wrong with it.
SafetensorsHeader read_header(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  const std::string where = file + ": header";
  const Json root = Json::parse(text, where);
  SafetensorsHeader header;
  header.tensors.reserve(root.as_object(where).size());
  for (const auto& [name, value] : root.as_object(where)) {
    if (name == "__metadata__") {
      read_metadata(value, file, header);
    } else {
      header.tensors.push_back(EntryReader(file, name, value, data_bytes).read());
    }
  }
  return header;
}

// Sorts by position and refuses anything but an exact tiling of the data section. Offsets are still relative to it.
void check_tiling(std::vector<TensorEntry>& tensors, std::uint64_t data_bytes, const std::string& origin) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.offset_bytes != b.offset_bytes ? a.offset_bytes < b.offset_bytes : a.bytes < b.bytes;
  });
  std::uint64_t end = 0;
  const std::string* previous = nullptr;
  for (const TensorEntry& t : tensors) {
    if (t.offset_bytes != end) {
      fail(ErrorCode::bad_input,
           fmt::format("{}: tensor {}: data_offsets: begin {} {} {}", origin, quote(t.name), t.offset_bytes,
                       t.offset_bytes < end ? "overlaps" : "leaves a hole after",
                       previous == nullptr ? "the start of the data" : "tensor " + quote(*previous)),
           "begin " + std::to_string(end));
    }
    end += t.bytes;
    previous = &t.name;
  }
  if (end != data_bytes) {
    fail(ErrorCode::bad_input,
         origin + ": " + std::to_string(data_bytes - end) + " bytes after the last tensor belong to none",
         "data of exactly " + std::to_string(end) + " bytes", "the header or the file is damaged; fetch it again");
  }
}

}  // namespace

std::string_view safetensors_dtype_name(DType type) { return kFormatNames[static_cast<std::size_t>(type)]; }

SafetensorsHeader parse_header(std::span<const std::byte> head, std::uint64_t file_bytes, std::string_view origin) {
  const std::string file(origin);
  const std::uint64_t length = header_length(head, file_bytes, file);
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{') {
    fail(ErrorCode::bad_input, file + ": header: does not begin with '{'", "a JSON object",
         "the file is damaged or no safetensors file");
  }
  const std::uint64_t data_bytes = file_bytes - kLengthBytes - length;
  SafetensorsHeader header;
  if (!scan_header(text, data_bytes, dtype_of, header)) header = read_header(text, data_bytes, file);
  header.data_begin_bytes = kLengthBytes + length;
  check_tiling(header.tensors, data_bytes, file);
  for (TensorEntry& t : header.tensors) t.offset_bytes += header.data_begin_bytes;
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path, std::uint32_t shard) : path_(path), file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  header_ = parse_header(bytes, bytes.size(), path_);
  for (TensorEntry& t : header_.tensors) {
    t.data = bytes.data() + t.offset_bytes;
    t.shard = shard;
  }
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  for (const TensorEntry& t : header_.tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

}  // namespace sluice::ckpt
