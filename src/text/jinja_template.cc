#include "text/jinja_template.h"

#include "text/jinja_eval.h"
#include "text/jinja_parser.h"
#include "text/jinja_print.h"

namespace sluice::text::jinja {

struct Template::Tree {
  ast::Body body;
};

Template Template::parse(std::string_view source, std::string origin) {
  auto tree = std::make_shared<Tree>();
  tree->body = parse_template(source, origin);
  return Template(std::move(origin), std::move(tree));
}

std::string Template::render(const Json& variables, const Clock& clock, const Limits& limits) const {
  Context context(origin_, limits, clock);
  const auto globals = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables.as_object("template variables")) {
    globals->set(name, from_json(context, value));
  }
  return Evaluator(context, globals).render(tree_->body);
}

}  // namespace sluice::text::jinja
