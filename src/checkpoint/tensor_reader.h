// What all schemes share: finding tensors through a name map, checking them, handing out their data, and streaming.
//
// Owned by a WeightSource, used by its one thread. Knows which tensors were used, reads the files ahead by one layer,
// and gives pages back, so that repacking a model streams it from the disk with about two layers of it in memory. A
// tensor whose data is not aligned to its element size, which the format allows, is copied once into aligned memory
// that lives as long as keep_alive(); all others are used where they are mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/name_map.h"
#include "checkpoint/scheme.h"
#include "core/buffer.h"
#include "core/function_ref.h"

namespace sluice::ckpt {

class TensorReader {
 public:
  // `checkpoint` must outlive the reader.
  TensorReader(const Checkpoint& checkpoint, NameMap names);

  // nullptr when the name map has no such role or the checkpoint no such tensor.
  const TensorEntry* find(std::string_view role, std::int64_t layer) const;
  // As find, with an error that names what is missing.
  const TensorEntry& require(std::string_view role, std::int64_t layer) const;
  // The tensors of these names; one error lists all that are missing.
  std::vector<const TensorEntry*> require_all(const std::vector<std::string>& names) const;
  // The first arrangement of the name map of which the layer has a tensor. Throws when the layer has none.
  const ExpertNames& expert_names(std::int64_t layer) const;

  // Throws Error(bad_input) naming file, tensor, found and expected.
  void check_dtype(const TensorEntry& tensor, std::initializer_list<DType> allowed) const;
  void check_shape(const TensorEntry& tensor, std::span<const std::int64_t> expected) const;

  // Data of a tensor, aligned to its elements; counts it as used by `layer`.
  const std::byte* use(const TensorEntry& tensor, std::int64_t layer);

  void release(std::int64_t layer);
  std::uint64_t bytes(std::int64_t layer) const;
  std::vector<std::string> unused() const;
  std::vector<std::string> notes() const;
  // Holds the mapped files and the aligned copies.
  std::shared_ptr<const void> keep_alive() const { return store_; }

 private:
  // What views point into.
  struct Store {
    std::shared_ptr<const void> mapping;
    std::unordered_map<const TensorEntry*, Buffer> copies;
  };

  void for_each_tensor(std::int64_t layer, FunctionRef<void(const TensorEntry&)> visit) const;
  void read_ahead(std::int64_t layer);
  const std::byte* aligned_copy(const TensorEntry& tensor);

  const Checkpoint& checkpoint_;
  NameMap names_;
  std::shared_ptr<Store> store_;
  std::unordered_set<const TensorEntry*> used_;
  std::map<std::int64_t, std::vector<const TensorEntry*>> used_by_layer_;
  std::unordered_set<std::int64_t> read_ahead_;  // layers whose files were asked for
};

}  // namespace sluice::ckpt
