// Writes a safetensors file whose tensors come in pieces, in any order and from several threads: the header is fixed
// first, then each piece goes to its place. Nothing of the data is kept in memory.
//
// Used by SafetensorsWriter and by the exporter (export.h). Tensors are laid out by falling element size, then name,
// and the header is padded, so that all data is aligned. The file appears complete or not at all: it is written beside
// its destination and renamed. write() may be called from several threads, the rest from one. Throws Error(usage) for
// a mistake of the caller, Error(resources) when the disk refuses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace sluice::ckpt {

struct TensorDecl {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // e2m1: in elements
};

// Bytes of a tensor. Throws Error(usage) when shape and type make no whole number of bytes that fits in 63 bits.
std::uint64_t tensor_bytes(const TensorDecl& tensor);

using FileMetadata = std::vector<std::pair<std::string, std::string>>;

class SafetensorsStream {
 public:
  SafetensorsStream(const std::string& path, const std::vector<TensorDecl>& tensors, const FileMetadata& metadata);
  SafetensorsStream(const SafetensorsStream&) = delete;
  SafetensorsStream& operator=(const SafetensorsStream&) = delete;
  ~SafetensorsStream();

  // Bytes of tensor `index` (of the constructor's list), from `offset_bytes` within it. Each byte is written once.
  void write(std::size_t index, std::uint64_t offset_bytes, std::span<const std::byte> data);

  // Puts the file in its place. Throws Error(usage) when bytes of a tensor are missing.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
  std::vector<std::uint64_t> begin_;  // [tensors] in the file
  std::vector<std::uint64_t> bytes_;  // [tensors]
  std::vector<std::string> names_;
  std::vector<std::atomic<std::uint64_t>> written_;  // [tensors] bytes so far
};

// Whether `path` is a file that a committed stream of these arguments left: same header, and as long as it says.
bool is_written(const std::string& path, const std::vector<TensorDecl>& tensors, const FileMetadata& metadata);

}  // namespace sluice::ckpt
