// Reader of safetensors files: 8 bytes of header length (little endian), a JSON header, raw little-endian tensor data.
//
// Used by Checkpoint (index.h) for model shards and by the commands for single files. Every header field is checked
// before any tensor is reachable: what parse_header returns can be read without a further bounds check. Tensors must
// tile the data section exactly (no hole, overlap or tail), as the format demands. Tensor data may lie at any byte
// offset: the format pads the header to 8 bytes but does not promise alignment, so who reads whole elements asks
// is_aligned first. Throws Error(bad_input) naming file, tensor, field, what was found and what was expected.
// Immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "core/dtype.h"

namespace sluice::ckpt {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // e2m1: in elements, two a byte
  std::uint64_t offset_bytes = 0;   // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
  const std::byte* data = nullptr;  // into the mapped file; null for an entry that only parse_header has seen
  std::uint32_t shard = 0;          // which file of the checkpoint; 0 in a single file

  std::span<const std::byte> span() const { return {data, bytes}; }
  bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(data) % element_alignment_bytes() == 0; }
  std::size_t element_alignment_bytes() const { return dtype_bits(dtype) < 8 ? 1 : dtype_bits(dtype) / 8u; }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t data_begin_bytes = 0;
};

// The largest header that is read, the limit of the reference implementation.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// Checks and decodes the header of a file of `file_bytes` bytes. `head` holds the file from its start, at least up to
// the end of the header (more is ignored; less than the header claims is an error). `origin` names the file in errors.
SafetensorsHeader parse_header(std::span<const std::byte> head, std::uint64_t file_bytes, std::string_view origin);

// The name that the format uses for a type ("BF16", "F8_E4M3").
std::string_view safetensors_dtype_name(DType type);

class SafetensorsFile {
 public:
  // Maps the file and checks its header. `shard` is copied into the entries.
  explicit SafetensorsFile(const std::string& path, std::uint32_t shard = 0);

  const std::string& path() const { return path_; }
  // The last part of the path.
  std::string_view file_name() const { return std::string_view(path_).substr(path_.rfind('/') + 1); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return header_.metadata; }
  std::uint64_t file_bytes() const { return file_.bytes().size(); }
  // As MappedFile::uncached.
  std::vector<std::span<const std::byte>> uncached() const { return file_.uncached(path_); }
  // Linear search: for files with a handful of tensors. nullptr when absent.
  const TensorEntry* find(std::string_view name) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace sluice::ckpt
