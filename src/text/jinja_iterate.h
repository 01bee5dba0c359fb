// Going through the items of any value that Python can iterate over.
//
// The one place that knows what iterating means for each type: characters of a text, keys of a dict, items of a list,
// nothing for undefined, whatever an object yields. Used by loops, filters, unpacking and membership.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

bool is_iterable(const Value& value);

class Iterator {
 public:
  // Fails when the value cannot be iterated over. Keeps the value alive; `context` must outlive the iterator.
  Iterator(Context& context, Value source);
  std::optional<Value> next();

 private:
  Context* context_;
  Value source_;
  std::size_t at_ = 0;  // index of the next item, or byte offset in a text
};

// All items in order.
std::vector<Value> collect(Context& context, const Value& source);
// Number of items of what has a length, else nullopt (generators, scalars). Undefined has length 0.
std::optional<std::size_t> length_of(const Value& value);

// What map, select and their like return: items computed when they are asked for, once. Even what is wrong with the
// source shows only then, as with Python's generators.
class Generator : public Object {
 public:
  using Pull = std::function<std::optional<Value>()>;  // the next item, or nullopt at the end
  // The item to yield for the next item of the source, or nullopt to leave it out.
  using Step = std::function<std::optional<Value>(const Value&)>;
  using Compute = std::function<std::vector<Value>()>;  // all items at once, on first use

  explicit Generator(Pull pull) : pull_(std::move(pull)) {}

  // `depth` is that of the deepest value that the functions hold.
  static Value stepwise(Context& context, const Value& source, Step step, int depth);
  static Value deferred(Context& context, Compute compute, int depth);

  std::string type_name() const override { return "generator"; }
  std::string text(Context&) const override { return "<generator object>"; }
  bool is_iterable() const override { return true; }
  std::optional<Value> next(Context& context) override;

 private:
  Pull pull_;
};

}  // namespace sluice::text::jinja
