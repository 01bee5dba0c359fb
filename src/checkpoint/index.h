// model.safetensors.index.json and the search for shards: which files of a folder hold the weights.
//
// Used by Checkpoint::open only; parse_index is also the entry of tests and fuzzers. Pure functions on text and a
// folder. Throws Error(bad_input) naming file and field.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::ckpt {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// tensor name > shard file name, in the order of the file.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// Decodes an index file. Shard names must be plain file names: a separator or ".." is refused.
WeightMap parse_index(std::string_view text, std::string_view origin);

// The shards that an index names, each once, sorted.
std::vector<std::string> shards_of(const WeightMap& index);

// The shards of a folder without an index: model.safetensors, else all model*.safetensors by name. Names of the form
// x-00001-of-00003.safetensors tell how many there must be.
std::vector<std::string> shards_without_index(const std::string& folder);

// A dangling symbolic link, as an unfinished download leaves it, does not exist.
bool file_exists(const std::string& path);
std::string join_path(const std::string& folder, std::string_view name);

}  // namespace sluice::ckpt
