#include "checkpoint/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "checkpoint/header_scan.h"
#include "checkpoint/messages.h"
#include "core/error.h"
#include "core/json.h"

namespace sluice::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

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

}  // namespace

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string join_path(const std::string& folder, std::string_view name) { return (fs::path(folder) / name).string(); }

WeightMap parse_index(std::string_view text, std::string_view origin) {
  if (WeightMap map; scan_index(text, map) && !map.empty() &&
                     std::all_of(map.begin(), map.end(), [](const auto& m) { return is_plain_file_name(m.second); })) {
    return map;
  }
  const std::string file(origin);
  const Json root = Json::parse(text, origin);
  root.as_object(file);
  const Json* map = root.find("weight_map");
  if (map == nullptr) fail(ErrorCode::bad_input, file + ": weight_map: missing", "an object of tensor > shard names");
  WeightMap out;
  for (const auto& [tensor, shard] : map->as_object(file + ": weight_map")) {
    if (!shard.is_string() || !is_plain_file_name(shard.as_string(file))) {
      fail(ErrorCode::bad_input, file + ": weight_map: " + printable(tensor) + ": found " + value_text(shard),
           "the plain name of a file in the same folder");
    }
    out.emplace_back(tensor, shard.as_string(file));
  }
  if (out.empty()) fail(ErrorCode::bad_input, file + ": weight_map: is empty", "at least one tensor");
  return out;
}

std::vector<std::string> shards_of(const WeightMap& index) {
  std::set<std::string_view> names;
  for (const auto& [tensor, shard] : index) names.insert(shard);
  return {names.begin(), names.end()};
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
  check_shard_count(folder, shards);
  return shards;
}

}  // namespace sluice::ckpt
