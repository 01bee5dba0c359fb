#include "checkpoint/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include "core/error.h"
#include "core/json.h"

namespace sluice::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::size_t kListed = 5;

std::string join(const std::string& folder, std::string_view name) { return (fs::path(folder) / name).string(); }

// A dangling symbolic link, as an unfinished download leaves it, does not exist.
bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error)
    fail(ErrorCode::bad_input, fmt::format("cannot list {} ({})", folder, error.message()), "a readable folder");
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> shards_of(const WeightMap& index) {
  std::vector<std::string> names;
  for (const auto& [tensor, shard] : index) names.push_back(shard);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> shards_without_index(const std::string& folder) {
  const std::vector<std::string> files = files_in(folder);
  std::vector<std::string> shards;
  std::vector<std::string> others;
  for (const std::string& name : files) {
    if (name == "model.safetensors") return {name};
    if (name.rfind("model", 0) == 0 && ends_with(name, kSuffix)) {
      shards.push_back(name);
    } else if (ends_with(name, kSuffix) || ends_with(name, ".bin") || ends_with(name, ".gguf") ||
               ends_with(name, ".pt") || ends_with(name, ".pth")) {
      others.push_back(name);
    }
  }
  if (shards.empty()) {
    fail(ErrorCode::bad_input,
         folder + ": has no weights" + (others.empty() ? "" : " that can be read (found " + first_few(others) + ")"),
         "model.safetensors, or shards with model.safetensors.index.json", "fetch the safetensors files of the model");
  }
  return shards;
}

// The number n of a name "...-of-0000n.safetensors".
std::optional<std::size_t> shard_count_in(std::string_view name) {
  name.remove_suffix(kSuffix.size());
  const std::size_t at = name.rfind("-of-");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string digits(name.substr(at + 4));
  const bool number =
      !digits.empty() && digits.size() <= 6 && digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::optional<std::size_t>(std::stoul(digits)) : std::nullopt;
}

// Without an index the names are the only hint that a shard is missing.
void check_shard_count(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<std::size_t> count = shard_count_in(name);
    if (count && *count != names.size()) {
      fail(ErrorCode::bad_input, fmt::format("{}: found {} shards, among them {}", folder, names.size(), name),
           fmt::format("{} shards", *count), "is the download complete?");
    }
  }
}

std::optional<Fields> optional_file(const std::string& path) {
  if (!exists(path)) return std::nullopt;
  return Fields(parse_config_file(path), path);
}

void check_folder(const std::string& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return;
  fail(ErrorCode::bad_input, folder + (exists(folder) ? ": is no folder" : ": does not exist"),
       "the folder of a Hugging Face checkpoint (config.json and *.safetensors)", "check the path");
}

}  // namespace

std::string first_few(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kListed) out += fmt::format(" and {} more", names.size() - kListed);
  return out;
}

WeightMap parse_index(std::string_view text, std::string_view origin) {
  const std::string file(origin);
  const Json root = Json::parse(text, origin);
  root.as_object(file);
  const Json* map = root.find("weight_map");
  if (map == nullptr) fail(ErrorCode::bad_input, file + ": weight_map: missing", "an object of tensor > shard names");
  WeightMap out;
  for (const auto& [tensor, shard] : map->as_object(file + ": weight_map")) {
    const std::string where = file + ": weight_map: " + tensor;
    if (!is_plain_file_name(shard.as_string(where))) {
      fail(ErrorCode::bad_input, where + ": found " + shard.dump(), "the plain name of a file in the same folder");
    }
    out.emplace_back(tensor, shard.as_string(where));
  }
  if (out.empty()) fail(ErrorCode::bad_input, file + ": weight_map: is empty", "at least one tensor");
  return out;
}

Checkpoint::Checkpoint(std::string folder, HfConfig config) : folder_(std::move(folder)), config_(std::move(config)) {
  generation_ = read_generation(optional_file(join(folder_, "generation_config.json")), config_.fields());
}

std::shared_ptr<const Checkpoint> Checkpoint::open(const std::string& folder) {
  check_folder(folder);
  std::shared_ptr<Checkpoint> out(new Checkpoint(folder, HfConfig::load(join(folder, "config.json"))));
  const std::string index_path = join(folder, kIndexName);
  if (exists(index_path)) {
    const MappedFile file(index_path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    const WeightMap index = parse_index(text, index_path);
    out->open_shards(shards_of(index));
    out->add_tensors(&index);
    out->check_index(index);
  } else {
    const std::vector<std::string> names = shards_without_index(folder);
    check_shard_count(folder, names);
    out->open_shards(names);
    out->add_tensors(nullptr);
  }
  return out;
}

void Checkpoint::open_shards(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!exists(join(folder_, name))) missing.push_back(name);
  }
  if (!missing.empty()) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} of {} shards missing: {}", folder_, missing.size(), names.size(), first_few(missing)),
         "every shard that " + std::string(kIndexName) + " names", "is the download complete?");
  }
  shards_.reserve(names.size());
  for (const std::string& name : names) {
    shards_.emplace_back(join(folder_, name), static_cast<std::uint32_t>(shards_.size()));
  }
}

// Two copies of a tensor are told apart by the index; without one, which copy counts would be a guess.
void Checkpoint::add_tensors(const WeightMap* index) {
  std::unordered_map<std::string_view, std::string_view> listed;
  if (index != nullptr) listed.insert(index->begin(), index->end());
  std::vector<std::string> twice;
  for (const SafetensorsFile& shard : shards_) {
    for (const TensorEntry& tensor : shard.tensors()) {
      const auto [at, is_new] = by_name_.emplace(tensor.name, &tensor);
      if (is_new) continue;
      const auto wanted = listed.find(tensor.name);
      if (wanted == listed.end()) {
        fail(ErrorCode::bad_input,
             fmt::format("{}: tensor \"{}\" is also in {}", shard.path(), tensor.name, file_of(*at->second)),
             "each tensor in one shard", "remove the file that does not belong to the checkpoint");
      }
      twice.push_back(tensor.name);
      if (fs::path(shard.path()).filename() == wanted->second) at->second = &tensor;
    }
  }
  if (!twice.empty()) {
    notes_.push_back(
        fmt::format("{} tensors are in two shards, those of the index are used: {}", twice.size(), first_few(twice)));
  }
  for (const SafetensorsFile& shard : shards_) {
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
    if (tensor == nullptr || fs::path(file_of(*tensor)).filename() != shard) absent.push_back(name + " in " + shard);
  }
  if (!absent.empty()) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} tensors are not in the shard that the index names: {}", join(folder_, kIndexName),
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
