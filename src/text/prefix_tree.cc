#include "text/prefix_tree.h"

#include <utility>

namespace sluice::text {

std::size_t PrefixTree::slot_of(std::uint64_t key) const {
  const std::size_t mask = edges_.size() - 1;
  std::size_t i = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
  while (edges_[i].node >= 0 && edges_[i].key != key) i = (i + 1) & mask;
  return i;
}

std::int32_t PrefixTree::child(std::int32_t node, unsigned char byte) const {
  if (edges_.empty()) return -1;
  return edges_[slot_of(static_cast<std::uint64_t>(node) << 8 | byte)].node;
}

std::int32_t PrefixTree::make_child(std::int32_t node, unsigned char byte) {
  if (const std::int32_t existing = child(node, byte); existing >= 0) return existing;
  if (2 * (edge_count_ + 1) > edges_.size()) {
    std::vector<Edge> old(edges_.empty() ? 16 : 2 * edges_.size());
    std::swap(old, edges_);
    for (const Edge& e : old) {
      if (e.node >= 0) edges_[slot_of(e.key)] = e;
    }
  }
  const std::uint64_t key = static_cast<std::uint64_t>(node) << 8 | byte;
  edges_[slot_of(key)] = {key, static_cast<std::int32_t>(nodes_.size())};
  ++edge_count_;
  nodes_.push_back(-1);
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

void PrefixTree::insert(std::string_view key, std::int32_t value) {
  if (key.empty()) return;
  std::int32_t& first = first_[static_cast<unsigned char>(key[0])];
  if (first < 0) {
    first = static_cast<std::int32_t>(nodes_.size());
    nodes_.push_back(-1);
  }
  std::int32_t node = first;
  for (char c : key.substr(1)) node = make_child(node, static_cast<unsigned char>(c));
  if (nodes_[static_cast<std::size_t>(node)] < 0) nodes_[static_cast<std::size_t>(node)] = value;
}

bool PrefixTree::find(std::string_view text, std::size_t from, Match& match) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::int32_t node = first_[static_cast<unsigned char>(text[begin])];
    if (node < 0) continue;
    match.value = -1;
    for (std::size_t end = begin + 1; node >= 0; ++end) {
      if (const std::int32_t value = nodes_[static_cast<std::size_t>(node)]; value >= 0) match = {begin, end, value};
      if (end >= text.size()) break;
      node = child(node, static_cast<unsigned char>(text[end]));
    }
    if (match.value >= 0) return true;
  }
  return false;
}

}  // namespace sluice::text
