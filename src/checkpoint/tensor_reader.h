// What all schemes share: finding tensors through a name map, checking them, handing out their data, and streaming.
//
// Owned by a WeightSource, used by its one thread. Knows which tensors were used, reads the files ahead by one layer,
// and gives pages back, so that repacking a model streams it from the disk with about two layers of it in memory. A
// tensor whose data is not aligned to its element size, which the format allows, is copied once into aligned memory
// that lives as long as keep_alive(); all others are used where they are mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "checkpoint/findings.h"
#include "checkpoint/module_parts.h"
#include "checkpoint/name_map.h"
#include "checkpoint/page_drops.h"
#include "checkpoint/scheme.h"
#include "core/buffer.h"
#include "core/function_ref.h"

namespace sluice::ckpt {

class TensorReader {
 public:
  // `checkpoint` must outlive the reader. Without `ahead` nothing is read before it is touched,
  // and no more than that.
  // `pool`, which may be nullptr, helps release().
  TensorReader(const Checkpoint& checkpoint, NameMap names, bool ahead = true, ThreadPool* pool = nullptr);

  // nullptr when the name map has no such role or the checkpoint no such weight.
  const ModuleParts* find(std::string_view role, std::int64_t layer) const;
  // As find, with an error that names what is missing.
  const ModuleParts& require(std::string_view role, std::int64_t layer) const;
  // The weights of these (unquantised) names, nullptr for those that are missing.
  std::vector<const ModuleParts*> find_all(const std::vector<std::string>& names) const;
  // As find_all; one error lists all that are missing.
  std::vector<const ModuleParts*> require_all(const std::vector<std::string>& names) const;
  // The first arrangement of the name map of which the layer has a tensor. Throws when the layer has none.
  const ExpertNames& expert_names(std::int64_t layer) const;

  // Throws TensorError(bad_input) naming file, tensor, found and expected.
  void check_dtype(const TensorEntry& tensor, std::initializer_list<DType> allowed) const;
  void check_shape(const TensorEntry& tensor, std::span<const std::int64_t> expected) const;

  [[noreturn]] void fail_tensor(FindingKind kind, const TensorEntry& tensor, const std::string& found,
                                const std::string& expected, const std::string& hint = "") const;

  // Data of a tensor, aligned to its elements; counts it as used by `layer`.
  const std::byte* use(const TensorEntry& tensor, std::int64_t layer);
  // Counts it as used, whoever wants it.
  void mark_used(const TensorEntry& tensor, std::int64_t layer);
  // Counts it as used on another rank.
  void mark_used_elsewhere(const TensorEntry& tensor) { used_elsewhere_.insert(&tensor); }
  // `count` zeroed floats that live as long as keep_alive(), for scales that views need in another form. The same
  // floats for the same tensor; `is_new` tells whether they are to be filled.
  float* own_floats(const TensorEntry& tensor, std::int64_t count, bool& is_new);
  // All bytes of the parts of a module.
  static std::uint64_t bytes_of(const ModuleParts& parts);
  const Checkpoint& checkpoint() const { return checkpoint_; }

  void expect_experts(std::int64_t layer, const ExpertSlice& slice) {
    expected_[layer] = slice;
    bytes_.erase(layer);
  }
  void release(std::int64_t layer);
  // Of the layer's tensors; remembered after the first call.
  std::uint64_t bytes(std::int64_t layer) const;
  // Tensors that nobody asked for, but for those that the map ignores and the scales of KV caches.
  std::vector<std::string> unused() const;
  std::size_t kv_scales() const;
  std::vector<std::string> notes() const;
  // Holds the mapped files and the aligned copies.
  std::shared_ptr<const void> keep_alive() const { return store_; }
  // ExpertWeights::release for views into the mapped files, which it keeps mapped; ignores what is not in one.
  std::function<void(const void*, std::size_t)> page_release() const;

 private:
  // What views point into.
  struct Store {
    std::shared_ptr<const void> mapping;
    std::unordered_map<const TensorEntry*, Buffer> copies;
    std::unordered_map<const TensorEntry*, std::vector<float>> floats;
  };

  void for_each_tensor(std::int64_t layer, FunctionRef<void(std::span<const std::byte>)> visit) const;
  void for_each_expert_tensor(std::int64_t layer, const ExpertNames& names,
                              FunctionRef<void(std::span<const std::byte>)> visit) const;
  void read_ahead(std::int64_t layer);
  const std::byte* aligned_copy(const TensorEntry& tensor);

  const Checkpoint& checkpoint_;
  NameMap names_;
  ThreadPool* pool_;
  std::vector<ByteRange> uncached_;  // at the start, by address: to be read ahead; what is lost later is read when used
  ModuleIndex modules_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<PageDrops> drops_;
  std::unordered_set<const TensorEntry*> used_, used_elsewhere_;
  std::map<std::int64_t, std::vector<const TensorEntry*>> used_by_layer_;
  std::map<std::int64_t, ExpertSlice> expected_;  // by layer; the others are wanted whole
  mutable std::map<std::int64_t, std::uint64_t> bytes_;
  std::unordered_set<std::int64_t> read_ahead_;  // layers whose files were asked for
};

}  // namespace sluice::ckpt
