#include "text/jinja_iterate.h"

#include <algorithm>

#include "text/jinja_context.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {

bool is_iterable(const Value& value) {
  return value.is_text() || value.is_sequence() || value.is_dict() || value.is_undefined() ||
         (value.is_object() && value.object().is_iterable());
}

Iterator::Iterator(Context& context, Value source) : context_(&context), source_(std::move(source)) {
  if (!is_iterable(source_)) context.fail("a value of type " + source_.type_name() + " cannot be iterated over");
}

std::optional<Value> Iterator::next() {
  context_->step();
  if (source_.is_object()) return source_.object().next(*context_);
  if (source_.is_text()) {
    const std::string& bytes = source_.bytes();
    if (at_ >= bytes.size()) return std::nullopt;
    const std::size_t begin = at_;
    decode_next(bytes, at_);
    return context_->make_text(bytes.substr(begin, at_ - begin));  // plain even when the text is marked safe
  }
  if (source_.is_sequence() && at_ < source_.sequence().items.size()) return source_.sequence().items[at_++];
  if (source_.is_dict() && at_ < source_.dict().entries.size()) return source_.dict().entries[at_++].first;
  return std::nullopt;
}

std::vector<Value> collect(Context& context, const Value& source) {
  std::vector<Value> items;
  Iterator iterator(context, source);
  while (auto item = iterator.next()) {
    context.charge_bytes(sizeof(Value));
    items.push_back(std::move(*item));
  }
  return items;
}

std::optional<std::size_t> length_of(const Value& value) {
  if (value.is_text()) return value.text().code_points;
  if (value.is_sequence()) return value.sequence().items.size();
  if (value.is_dict()) return value.dict().entries.size();
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

Value Generator::stepwise(Context& context, const Value& source, Step step, int depth) {
  Pull pull = [&context, source, step = std::move(step), items = std::optional<Iterator>()]() mutable {
    if (!items) items.emplace(context, source);
    while (auto item = items->next()) {
      if (auto result = step(*item)) return result;
    }
    return std::optional<Value>();
  };
  return context.make_object(std::make_shared<Generator>(std::move(pull)), depth);
}

Value Generator::deferred(Context& context, Compute compute, int depth) {
  Pull pull = [compute = std::move(compute), items = std::optional<std::vector<Value>>(),
               at = std::size_t{0}]() mutable {
    if (!items) items = compute();
    return at < items->size() ? std::optional<Value>((*items)[at++]) : std::nullopt;
  };
  return context.make_object(std::make_shared<Generator>(std::move(pull)), depth);
}

std::optional<Value> Generator::next(Context& context) {
  const Context::Level level(context);
  return pull_();
}

}  // namespace sluice::text::jinja
