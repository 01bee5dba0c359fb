// A checkpoint folder: its shards, mapped and validated, and one table of all tensors.
//
// Opened once by the commands and handed to a WeightSource (scheme.h) and to the family files. Only headers are read at
// open; tensor data is paged in when touched. What the shards contain wins over what the index file says: tensors that
// the index does not list are kept, with a note. Immutable and thread-safe after open; every TensorEntry and every view
// of its data lives as long as the Checkpoint or a copy of its mapping().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"

namespace sluice::ckpt {

class Checkpoint {
 public:
  // Reads config.json, generation_config.json and the headers of all shards in `folder`: those of
  // model.safetensors.index.json, else model.safetensors, else all model*.safetensors by name.
  // Throws Error(bad_input) when a file or a shard is missing or damaged, or files contradict each other.
  static std::unique_ptr<Checkpoint> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const HfConfig& config() const { return config_; }
  const GenerationConfig& generation() const { return generation_; }

  // nullptr when absent. Constant time.
  const TensorEntry* find(std::string_view name) const;
  // All tensors, in the order of shards and of data in them.
  const std::vector<const TensorEntry*>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& shards() const { return *shards_; }
  // Keeps the mapped files alive; for views that may outlive the Checkpoint.
  std::shared_ptr<const void> mapping() const { return shards_; }
  // "model-00001-of-00002.safetensors" with its folder, for messages.
  const std::string& file_of(const TensorEntry& tensor) const { return (*shards_)[tensor.shard].path(); }
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }

  // Oddities that do not prevent use, one sentence each, for the start-up log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Checkpoint(std::string folder, HfConfig config);
  void open_shards(const std::vector<std::string>& names);
  void add_tensors(const WeightMap* index);
  void check_index(const WeightMap& index);

  std::string folder_;
  HfConfig config_;
  GenerationConfig generation_;
  std::shared_ptr<const std::vector<SafetensorsFile>> shards_;
  std::vector<const TensorEntry*> tensors_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;  // keys point into the entries
  std::uint64_t tensor_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace sluice::ckpt
