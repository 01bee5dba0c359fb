// A parsed template of the Jinja subset.
//
// Parse once, render any number of times from any number of threads at once: the tree never changes and every render
// has its own state. chat_template.h is the use of it that knows about conversations.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "text/jinja_context.h"

namespace sluice::text::jinja {

class Template {
 public:
  // `origin` names the template in messages. Throws Error(bad_input) with line and construct.
  static Template parse(std::string_view source, std::string origin);

  // `variables` is an object: its members are the variables of the template. Throws Error(bad_input) when the template
  // fails or refuses its input, Error(resources) when it exceeds a limit.
  std::string render(const Json& variables, const Clock& clock, const Limits& limits = {}) const;

  const std::string& origin() const { return origin_; }

 private:
  struct Tree;
  Template(std::string origin, std::shared_ptr<const Tree> tree) : origin_(std::move(origin)), tree_(std::move(tree)) {}

  std::string origin_;
  std::shared_ptr<const Tree> tree_;
};

}  // namespace sluice::text::jinja
