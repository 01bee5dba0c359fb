#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <system_error>

#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace sluice::ckpt {
namespace {

constexpr std::size_t kHeaderAlignBytes = 8;

// A file beside `path` that becomes `path` on commit and vanishes otherwise.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(replaceable_target(path)), temporary_(fmt::format("{}.tmp{}", path_, getpid())) {
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_errno("create", temporary_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!committed_) unlink(temporary_.c_str());
  }

  void append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno("write", temporary_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void commit() {
    if (fsync(fd_) != 0) fail_errno("write", temporary_);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("create", path_);
    committed_ = true;
  }

 private:
  [[noreturn]] static void fail_errno(std::string_view action, const std::string& path) {
    const int error = errno;
    fail(ErrorCode::resources, fmt::format("cannot {} {} ({})", action, path, std::generic_category().message(error)),
         "a writable folder with enough free space");
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

// Bytes of a tensor, or -1 when shape and type make no whole number of bytes that fits in 63 bits.
std::int64_t tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bits = dtype_bits(dtype);
  for (const std::int64_t n : shape) {
    if (n < 0 || (n != 0 && bits > std::numeric_limits<std::int64_t>::max() / n)) return -1;
    bits *= n;
  }
  return bits % 8 == 0 ? bits / 8 : -1;
}

}  // namespace

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> data) {
  const std::int64_t bytes = tensor_bytes(dtype, shape);
  if (bytes < 0 || data.size() != static_cast<std::size_t>(bytes)) {
    fail(ErrorCode::usage,
         fmt::format("tensor {}: {} bytes for {} {}", quote(name), data.size(), safetensors_dtype_name(dtype),
                     shape_text(shape)),
         bytes < 0 ? "a shape of whole bytes" : fmt::format("{} bytes", bytes));
  }
  if (name == "__metadata__" || !names_.insert(name).second) {
    fail(ErrorCode::usage, fmt::format("tensor name {} is reserved or used twice", quote(name)), "a name of its own");
  }
  items_.push_back({std::move(name), dtype, std::move(shape), data});
}

std::string SafetensorsWriter::header(const std::vector<const Item*>& order) const {
  Json::Object root;
  if (!metadata_.empty()) {
    Json::Object pairs;
    for (const auto& [key, value] : metadata_) pairs.emplace_back(key, value);
    root.emplace_back("__metadata__", std::move(pairs));
  }
  std::int64_t begin = 0;
  for (const Item* item : order) {
    const std::int64_t end = begin + static_cast<std::int64_t>(item->data.size());
    Json::Array shape(item->shape.begin(), item->shape.end());
    root.emplace_back(item->name, Json::Object{{"dtype", safetensors_dtype_name(item->dtype)},
                                               {"shape", std::move(shape)},
                                               {"data_offsets", Json::Array{begin, end}}});
    begin = end;
  }
  std::string text = Json(std::move(root)).dump();
  text.resize((text.size() + kHeaderAlignBytes - 1) / kHeaderAlignBytes * kHeaderAlignBytes, ' ');
  return text;
}

void SafetensorsWriter::write(const std::string& path) const {
  std::vector<const Item*> order;
  for (const Item& item : items_) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    const int a_bits = dtype_bits(a->dtype);
    const int b_bits = dtype_bits(b->dtype);
    return a_bits != b_bits ? a_bits > b_bits : a->name < b->name;
  });
  std::string head(kHeaderAlignBytes, '\0');
  const std::string text = header(order);
  for (std::size_t i = 0; i < kHeaderAlignBytes; ++i) head[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  head += text;

  TemporaryFile file(path);
  file.append(std::as_bytes(std::span(head)));
  for (const Item* item : order) file.append(item->data);
  file.commit();
}

}  // namespace sluice::ckpt
