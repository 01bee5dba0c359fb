#include "checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <unordered_set>

#include "checkpoint/adapter.h"
#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

namespace fs = std::filesystem;

std::optional<Fields> optional_file(const std::string& path) {
  if (!file_exists(path)) return std::nullopt;
  return Fields(parse_config_file(path), path);
}

void check_folder(const std::string& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return;
  fail(ErrorCode::bad_input, folder + (file_exists(folder) ? ": is no folder" : ": does not exist"),
       "the folder of a Hugging Face checkpoint (config.json and *.safetensors)", "check the path");
}

}  // namespace

Checkpoint::Checkpoint(std::string folder, HfConfig config) : folder_(std::move(folder)), config_(std::move(config)) {
  generation_ = read_generation(optional_file(join_path(folder_, "generation_config.json")), config_.fields());
}

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& folder) {
  check_folder(folder);
  const std::string config = join_path(folder, "config.json");
  if (!file_exists(config)) refuse_adapter(folder);
  std::unique_ptr<Checkpoint> out(new Checkpoint(folder, HfConfig::load(config)));
  const std::string index_path = join_path(folder, kIndexName);
  if (file_exists(index_path)) {
    const MappedFile file(index_path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    const WeightMap index = parse_index(text, index_path);
    out->open_shards(shards_of(index));
    out->add_tensors(&index);
    out->check_index(index);
  } else {
    const std::vector<std::string> names = shards_without_index(folder);
    out->open_shards(names);
    out->add_tensors(nullptr);
  }
  return out;
}

void Checkpoint::open_shards(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!file_exists(join_path(folder_, name))) missing.push_back(name);
  }
  if (!missing.empty()) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} of {} shards missing: {}", folder_, missing.size(), names.size(), first_few(missing)),
         "all shards of the checkpoint", "is the download complete?");
  }
  auto shards = std::make_shared<std::vector<SafetensorsFile>>();
  shards->reserve(names.size());
  for (const std::string& name : names) {
    shards->emplace_back(join_path(folder_, name), static_cast<std::uint32_t>(shards->size()));
  }
  shards_ = std::move(shards);
}

// Two copies of a tensor are told apart by the index; without one, which copy counts would be a guess.
void Checkpoint::add_tensors(const WeightMap* index) {
  std::unordered_map<std::string_view, std::string_view> listed;
  if (index != nullptr) listed.insert(index->begin(), index->end());
  std::size_t count = 0;
  for (const SafetensorsFile& shard : *shards_) count += shard.tensors().size();
  by_name_.reserve(count);
  std::vector<std::string> twice;
  for (const SafetensorsFile& shard : *shards_) {
    for (const TensorEntry& tensor : shard.tensors()) {
      const auto [at, is_new] = by_name_.emplace(tensor.name, &tensor);
      if (is_new) continue;
      const auto wanted = listed.find(tensor.name);
      if (wanted == listed.end()) {
        fail(ErrorCode::bad_input,
             fmt::format("{}: tensor {} is also in {}", shard.path(), quote(tensor.name), file_of(*at->second)),
             "each tensor in one shard", "remove the file that does not belong to the checkpoint");
      }
      twice.push_back(tensor.name);
      if (shard.file_name() == wanted->second) at->second = &tensor;
    }
  }
  if (!twice.empty()) {
    notes_.push_back(
        fmt::format("{} tensors are in two shards, those of the index are used: {}", twice.size(), first_few(twice)));
  }
  for (const SafetensorsFile& shard : *shards_) {
    for (const TensorEntry& tensor : shard.tensors()) {
      if (by_name_.find(tensor.name)->second != &tensor) continue;
      tensors_.push_back(&tensor);
      tensor_bytes_ += tensor.bytes;
    }
  }
}

void Checkpoint::check_index(const WeightMap& index) {
  std::vector<std::string> absent;
  std::unordered_set<std::string_view> listed;
  for (const auto& [name, shard] : index) {
    listed.insert(name);
    const TensorEntry* tensor = find(name);
    if (tensor == nullptr || (*shards_)[tensor->shard].file_name() != shard) {
      absent.push_back(fmt::format("{} in {}", name, shard));
    }
  }
  if (!absent.empty()) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} tensors are not in the shard that the index names: {}", join_path(folder_, kIndexName),
                     absent.size(), first_few(absent)),
         "index and shards of one and the same checkpoint", "fetch the index and the shards again");
  }
  std::vector<std::string> extra;
  for (const TensorEntry* tensor : tensors_) {
    if (listed.find(tensor->name) == listed.end()) extra.push_back(tensor->name);
  }
  if (!extra.empty()) {
    notes_.push_back(
        fmt::format("{} tensors are in the shards but not in {}: {}", extra.size(), kIndexName, first_few(extra)));
  }
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

}  // namespace sluice::ckpt
