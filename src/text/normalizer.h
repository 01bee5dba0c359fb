// The "normalizer" of tokenizer.json: what is done to text before it is cut and looked up.
//
// Owned by Tokenizer. Immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/regex.h"

namespace sluice::text {

class Normalizer {
 public:
  Normalizer() = default;
  // Throws Error(unsupported) for a type that is not known, by name.
  Normalizer(const Json& json, const std::string& where) { read(json, where); }

  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view valid_utf8, RegexScratch& scratch) const;

  struct Step {
    virtual ~Step() = default;
    virtual std::string apply(std::string_view text, RegexScratch& scratch) const = 0;
  };

 private:
  void read(const Json& json, const std::string& where);

  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace sluice::text
