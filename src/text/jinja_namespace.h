// What namespace() returns: the one value that a template can change.
//
// Owned by the Context of the render, because a namespace may hold itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

class Namespace : public Object {
 public:
  explicit Namespace(std::vector<std::pair<std::string, Value>> attributes) : attributes_(std::move(attributes)) {}

  std::string type_name() const override { return "namespace"; }
  std::string text(Context& context) const override;
  std::optional<Value> attribute(Context& context, std::string_view name) override;
  void set(Context& context, const std::string& name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

}  // namespace sluice::text::jinja
