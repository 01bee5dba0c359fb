// The state of a for loop, which is also the `loop` variable inside it.
//
// Items are drawn one at a time, as Jinja does, so that a test of the loop sees what the body has changed.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "text/jinja_context.h"
#include "text/jinja_iterate.h"

namespace sluice::text::jinja {

class Loop : public Object {
 public:
  using Keep = std::function<bool(const Value&)>;  // the `if` of the loop; empty when there is none

  Loop(Context& context, const Value& items, Keep keep);

  // Moves to the next item; nullopt at the end.
  std::optional<Value> advance(Context& context);
  // Lets go of everything that could refer back to the loop or to its scope.
  void finish();

  std::string type_name() const override { return "loop"; }
  std::string text(Context&) const override { return "<loop>"; }
  std::optional<Value> attribute(Context& context, std::string_view name) override;

 private:
  std::optional<Value> pull(Context& context);
  const std::optional<Value>& peek(Context& context);
  std::int64_t length(Context& context);

  std::optional<Iterator> items_;
  Keep keep_;
  std::optional<std::size_t> known_length_;
  std::optional<std::vector<Value>> drained_;  // the items left, once the length was asked for
  std::size_t drained_at_ = 0;
  std::int64_t index0_ = -1;
  std::optional<Value> previous_, current_, after_;
};

}  // namespace sluice::text::jinja
