// Writes a safetensors file that every reader of the format accepts.
//
// Used by `sluice layer --out` and tests, for data that is in memory; safetensors_stream.h does the work and says how
// the file is laid out. Not thread-safe. Throws Error(usage) for a mistake of the caller, Error(resources) when the
// disk refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_stream.h"
#include "core/dtype.h"

namespace sluice::ckpt {

class SafetensorsWriter {
 public:
  // `data` is not copied and must stay until write(). Its size must be that of dtype and shape.
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> data);

  template <class T>
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& data) {
    add(std::move(name), dtype, std::move(shape), std::as_bytes(std::span(data)));
  }

  void set_metadata(std::string key, std::string value) { metadata_.emplace_back(std::move(key), std::move(value)); }

  void write(const std::string& path) const;

 private:
  std::vector<TensorDecl> tensors_;
  std::vector<std::span<const std::byte>> data_;  // [tensors]
  std::unordered_set<std::string> names_;
  FileMetadata metadata_;
};

}  // namespace sluice::ckpt
