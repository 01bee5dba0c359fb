// Writes a safetensors file that every reader of the format accepts.
//
// Used by `sluice layer --out`, `sluice quantize` and tests. Tensors are laid out by falling element size, then name,
// and the header is padded, so that all data is aligned. The file appears complete or not at all: it is written beside
// its destination and renamed. Not thread-safe. Throws Error(usage) for a mistake of the caller, Error(resources) when
// the disk refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

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
  struct Item {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> data;
  };
  std::string header(const std::vector<const Item*>& order) const;

  std::vector<Item> items_;
  std::unordered_set<std::string> names_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace sluice::ckpt
