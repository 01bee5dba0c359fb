#include "checkpoint/safetensors_stream.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>
#include <system_error>
#include <unordered_set>

#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace sluice::ckpt {
namespace {

constexpr std::size_t kHeaderAlignBytes = 8;

[[noreturn]] void fail_errno(std::string_view action, const std::string& path) {
  const int error = errno;
  fail(ErrorCode::resources, fmt::format("cannot {} {} ({})", action, path, std::generic_category().message(error)),
       "a writable folder with enough free space");
}

// Order of the data: falling element size, then name.
std::vector<std::size_t> data_order(const std::vector<TensorDecl>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int a_bits = dtype_bits(tensors[a].dtype);
    const int b_bits = dtype_bits(tensors[b].dtype);
    return a_bits != b_bits ? a_bits > b_bits : tensors[a].name < tensors[b].name;
  });
  return order;
}

void check_names(const std::vector<TensorDecl>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorDecl& tensor : tensors) {
    if (tensor.name != "__metadata__" && names.insert(tensor.name).second) continue;
    fail(ErrorCode::usage, fmt::format("tensor name {} is reserved or used twice", quote(tensor.name)),
         "a name of its own");
  }
}

// Length field and padded JSON; data offsets count from its end.
std::string head_of(const std::vector<TensorDecl>& tensors, const FileMetadata& metadata) {
  check_names(tensors);
  Json::Object root;
  if (!metadata.empty()) {
    Json::Object pairs;
    for (const auto& [key, value] : metadata) pairs.emplace_back(key, value);
    root.emplace_back("__metadata__", std::move(pairs));
  }
  std::int64_t begin = 0;
  for (const std::size_t i : data_order(tensors)) {
    const TensorDecl& tensor = tensors[i];
    const std::int64_t end = begin + static_cast<std::int64_t>(tensor_bytes(tensor));
    Json::Array shape(tensor.shape.begin(), tensor.shape.end());
    root.emplace_back(tensor.name, Json::Object{{"dtype", safetensors_dtype_name(tensor.dtype)},
                                                {"shape", std::move(shape)},
                                                {"data_offsets", Json::Array{begin, end}}});
    begin = end;
  }
  std::string text = Json(std::move(root)).dump();
  text.resize((text.size() + kHeaderAlignBytes - 1) / kHeaderAlignBytes * kHeaderAlignBytes, ' ');
  std::string head(kHeaderAlignBytes, '\0');
  for (std::size_t i = 0; i < kHeaderAlignBytes; ++i) head[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return head + text;
}

void write_at(int fd, const std::string& path, std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
}

}  // namespace

std::uint64_t tensor_bytes(const TensorDecl& tensor) {
  std::int64_t bits = dtype_bits(tensor.dtype);
  bool fits = true;
  for (const std::int64_t n : tensor.shape) {
    fits = fits && n >= 0 && (n == 0 || bits <= std::numeric_limits<std::int64_t>::max() / n);
    if (fits) bits *= n;
  }
  if (fits && bits % 8 == 0) return static_cast<std::uint64_t>(bits / 8);
  fail(ErrorCode::usage,
       fmt::format("tensor {}: {} {}", quote(tensor.name), safetensors_dtype_name(tensor.dtype),
                   shape_text(tensor.shape)),
       "a shape of whole bytes");
}

SafetensorsStream::SafetensorsStream(const std::string& path, const std::vector<TensorDecl>& tensors,
                                     const FileMetadata& metadata)
    : path_(replaceable_target(path)), temporary_(fmt::format("{}.tmp{}", path_, getpid())), written_(tensors.size()) {
  const std::string head = head_of(tensors, metadata);
  begin_.resize(tensors.size());
  std::uint64_t at = head.size();
  for (const std::size_t i : data_order(tensors)) {
    begin_[i] = at;
    at += tensor_bytes(tensors[i]);
  }
  for (const TensorDecl& tensor : tensors) {
    bytes_.push_back(tensor_bytes(tensor));
    names_.push_back(tensor.name);
  }
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("create", temporary_);
  write_at(fd_, temporary_, 0, std::as_bytes(std::span(head)));
}

SafetensorsStream::~SafetensorsStream() {
  if (fd_ >= 0) close(fd_);
  if (!committed_ && fd_ >= 0) unlink(temporary_.c_str());
}

void SafetensorsStream::write(std::size_t index, std::uint64_t offset_bytes, std::span<const std::byte> data) {
  if (index >= bytes_.size() || offset_bytes > bytes_[index] || data.size() > bytes_[index] - offset_bytes) {
    fail(ErrorCode::usage, fmt::format("{}: {} bytes at {} of tensor {}", path_, data.size(), offset_bytes, index),
         "bytes within a tensor");
  }
  write_at(fd_, temporary_, begin_[index] + offset_bytes, data);
  written_[index] += data.size();
}

void SafetensorsStream::commit() {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (written_[i] == bytes_[i]) continue;
    fail(ErrorCode::usage, fmt::format("{}: tensor {}: {} bytes written", path_, quote(names_[i]), written_[i].load()),
         fmt::format("{} bytes", bytes_[i]));
  }
  if (fsync(fd_) != 0) fail_errno("write", temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("create", path_);
  committed_ = true;
}

bool is_written(const std::string& path, const std::vector<TensorDecl>& tensors, const FileMetadata& metadata) {
  const std::string head = head_of(tensors, metadata);
  std::uint64_t file_bytes = head.size();
  for (const TensorDecl& tensor : tensors) file_bytes += tensor_bytes(tensor);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != file_bytes) return false;
  std::ifstream file(path, std::ios::binary);
  std::string found(head.size(), '\0');
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  return file.good() && found == head;
}

}  // namespace sluice::ckpt
