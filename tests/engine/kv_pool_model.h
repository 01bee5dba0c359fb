// A slow KV pool to compare with: what every holder holds and what is published, in plain lists of whole beginnings.
// Used by kv_pool_property_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sluice::engine::testing {

using Text = std::pair<std::uint64_t, std::vector<std::int32_t>>;  // salt, and everything up to the end of a block

struct Holder {
  std::uint64_t salt = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> blocks;
  std::int64_t published = 0;
};

struct PoolModel {
  std::int64_t total = 0;
  std::vector<Holder> holders;
  std::map<Text, std::int32_t> published;
  std::map<std::int32_t, std::int64_t> idle_since;
  std::int64_t clock = 0;

  std::int64_t count(std::int32_t block) const {
    std::int64_t n = 0;
    for (const Holder& h : holders) n += std::count(h.blocks.begin(), h.blocks.end(), block);
    return n;
  }
  std::set<std::int32_t> held() const {
    std::set<std::int32_t> all;
    for (const Holder& h : holders) all.insert(h.blocks.begin(), h.blocks.end());
    return all;
  }
  std::optional<Text> text_of(std::int32_t block) const {
    for (const auto& [text, b] : published) {
      if (b == block) return text;
    }
    return std::nullopt;
  }
  bool has_children(const Text& text) const {
    for (const auto& [other, b] : published) {
      const bool longer = other.first == text.first && other.second.size() > text.second.size();
      if (longer && std::equal(text.second.begin(), text.second.end(), other.second.begin())) return true;
    }
    return false;
  }
  // The published block that nobody holds, nothing continues, and that has been so for the longest time.
  std::optional<std::int32_t> victim() const {
    std::optional<std::int32_t> best;
    for (const auto& [text, block] : published) {
      if (count(block) > 0 || has_children(text)) continue;
      if (!best || idle_since.at(block) < idle_since.at(*best)) best = block;
    }
    return best;
  }
  bool has_free() const { return std::ssize(held()) + idle() < total; }
  std::int64_t idle() const {
    std::int64_t n = 0;
    for (const auto& [text, block] : published) n += count(block) == 0 ? 1 : 0;
    return n;
  }
  void let_go(Holder& h) {
    const std::vector<std::int32_t> blocks = std::exchange(h.blocks, {});
    for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) idle_since[*it] = ++clock;
    h = {};
  }
};

}  // namespace sluice::engine::testing
