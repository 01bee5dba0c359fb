// A set of modules as quantisation descriptions name them: whole names, parts of names, globs and regular expressions.
//
// Used by quant_config for exclude lists and targets. Immutable once built; lookups cost a few hash look-ups and one
// match for each glob and expression. Thread-safe for reading.
#pragma once

#include <bitset>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/regex.h"

namespace sluice::ckpt {

class ModuleSet {
 public:
  // "model.layers.3.mlp", "*.mlp.gate", "re:.*lm_head". `where` names the list in errors.
  void add(std::string_view pattern, const std::string& where);
  bool empty() const { return names_.empty() && globs_.empty() && expressions_.empty(); }

  // Whether a pattern names the module, something it lies in, or a run of whole components of its name: "lm_head",
  // "model.layers.3" and "self_attn" all hold "model.layers.3.self_attn.lm_head". Globs and expressions see the whole
  // name; an expression must match from its start.
  bool contains(std::string_view module) const;
  // Whether a plain name lies inside of the module: what an exclude list written before experts were stacked has.
  bool contains_child_of(std::string_view module) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return a == b; }
  };

  using Names = std::unordered_set<std::string, Hash, Equal>;

  Names names_;
  Names parents_;             // everything that a plain name lies in
  std::bitset<256> lengths_;  // of plain names; the last one also of longer ones
  std::vector<std::string> globs_;
  std::vector<text::Regex> expressions_;
};

// Shell pattern: "*" is any text, "?" any character. Linear in practice, never worse than the product of the lengths.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace sluice::ckpt
